"""What commands print: tables, or JSON."""
