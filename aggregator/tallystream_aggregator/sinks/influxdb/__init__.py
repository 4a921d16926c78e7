"""The sink and the reader of InfluxDB 2.x."""
