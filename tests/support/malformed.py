"""What readers refuse: values, sketches and metrics of records, bytes and times. And what is unusual, and accepted."""

from __future__ import annotations

POISON: list[bytes] = [
    b"",
    b"{",
    b"[]",
    b"null",
    b"\xff\xfe{}",
    b'{"v":1}',
    b'{"name":"a","value":-1}',
    b'{"name":"a","value":1.5}',
    b'{"name":"a","value":NaN}',
    b'{"name":"a","value":true}',
    b'{"name":"","value":1}',
    b'{"name":"a","value":' + b"9" * 5000 + b"}",
    b'{"name":"a\\u0000","value":1}',
    b'{"name":"a\\ud800","value":1}',
    b'{"name":"a","value":1,"x":' + b"[" * 80 + b"]" * 80 + b"}",
    b'{"name":"a","value":1,"x":' + b"[" * 100_000 + b"}",
    b'{"name":"a","value":1} x',
    b'{"name":"a","value":1,"x":"\xff"}',
    '{"name":"a","value":1}'.encode("utf-16"),
    b'\xef\xbb\xbf{"name":"a","value":1}',
    b'{"metrics":[],"app":"a"}',
    b'{"metrics":{}}',
    b'{"v":1,"forget":{"metric":"a","type":[]}}',
    b'{"app":"a","life":"01HF7YAT00AAAAAAAAAAAAAAAA","part":0,"seq":1,"ts":-1,"every_ms":1000,"final":false,"metrics":[]}',
]
"""Values of records that are refused completely."""

ODD: list[bytes] = [
    b'{"name":"metrics","value":3}',
    b'{"name":"a","value":2,"value":3}',
    b'{"n\\u0061me":"a","value":7,"unknown":[1e999,"\\ud800",NaN]}',
    b'{"name":"a","value":4,"x":1e999}',
    b'{"name":"a","value":5,"x":' + b"[" * 50 + b"]" * 50 + b"}",
    b'{"name":"a","value":6,"tags":{"t":"1","t":"2"}}',
]
"""Unusual values of the short form that are accepted."""

BAD_SKETCHES: list[str] = [
    "7",
    '"sketch"',
    "[]",
    "{}",
    '{"scale":6}',
    '{"scale":6,"zero_count":2}',
    '{"scale":6.5,"zero_count":1}',
    '{"scale":21,"zero_count":1}',
    '{"scale":-11,"zero_count":1}',
    '{"scale":true,"zero_count":1}',
    '{"scale":6,"zero_count":"1"}',
    '{"scale":6,"zero_count":-1,"positive":[{"offset":0,"counts":"Ag=="}]}',
    '{"scale":6,"positive":null,"zero_count":1}',
    '{"scale":6,"positive":[0,1]}',
    '{"scale":6,"positive":{"offset":0,"counts":"AQ=="}}',
    '{"scale":6,"positive":[{"counts":"AQ=="}]}',
    '{"scale":6,"positive":[{"offset":0,"counts":[1]}]}',
    '{"scale":6,"positive":[{"offset":0,"counts":"AQ"}]}',
    '{"scale":6,"positive":[{"offset":0,"counts":"A Q=="}]}',
    '{"scale":6,"positive":[{"offset":0,"counts":"AQ==AQ=="}]}',
    '{"scale":6,"positive":[{"offset":0,"width":3,"counts":"AQAA"}]}',
    '{"scale":6,"positive":[{"offset":0,"width":true,"counts":"AQ=="}]}',
    '{"scale":6,"positive":[{"offset":0,"width":2,"counts":"AQ=="}]}',
    '{"scale":6,"positive":[{"offset":0,"width":8,"counts":"//////////8="}]}',
    '{"scale":6,"positive":[{"offset":0,"width":8,"counts":"AAAAAAAAAIABAAAAAAAAgA=="}]}',
    '{"scale":6,"positive":[{"offset":2147483648,"counts":"AQ=="}]}',
    '{"scale":6,"positive":[{"offset":65536,"counts":"AQ=="}]}',
    '{"scale":6,"positive":[{"offset":65537,"counts":""}],"negative":[{"offset":0,"counts":"AQ=="}]}',
    '{"scale":6,"negative":[{"offset":-68801,"counts":"AQ=="}]}',
    '{"scale":6,"positive":[{"offset":0,"counts":"AQ=="},{"offset":0,"counts":"AA=="}]}',
    '{"scale":6,"positive":[{"offset":0,"counts":"AQ=="},{"offset":4096,"counts":"AA=="}]}',
    '{"scale":-10,"positive":[{"offset":1,"counts":"AQ=="}]}',
    '{"scale":6,"positive":[{"offset":0,"counts":"' + "AAAA" * 1365 + "AAE=" + '"}]}',
]
"""Sketches, as JSON text, that are refused for a metric with a count of 1."""

_OF_0 = "0-e3b0c44298fc1c14"
BAD_BUCKETS: list[str] = [
    '"bounds":"","counts":"AQAAAAAAAAA="',
    '"bounds":"","counts":"AQAAAAAAAAA=","tags":{"bounds":"0-"}',
    f'"bounds":"","counts":"AgAAAAAAAAA=","tags":{{"bounds":"{_OF_0}"}}',
    f'"bounds":"","counts":"AQ==","tags":{{"bounds":"{_OF_0}"}}',
    f'"bounds":"","counts":[1],"tags":{{"bounds":"{_OF_0}"}}',
    f'"bounds":"AQ==","counts":"AQAAAAAAAAAA","tags":{{"bounds":"{_OF_0}"}}',
    f'"bounds":"AAAAAAAA8H8=","counts":"AQAAAAAAAAAAAAAAAAAAAA==","tags":{{"bounds":"{_OF_0}"}}',
]
"""Explicit buckets, as JSON text, that are refused for a metric with a count of 1."""

BAD_METRICS: list[str] = [
    '{"type":"gauge","name":"g","value":NaN}',
    '{"type":"gauge","name":"g","value":-Infinity}',
    '{"type":"gauge","name":"g","value":null}',
    '{"type":"gauge","name":"g","value":1e400}',
    '{"type":"gauge","name":"g","value":1' + "0" * 350 + "}",
    '{"type":"gauge","name":"g","value":1' + "0" * 5000 + "}",
    '{"type":"gauge","name":"g","value":"1"}',
    '{"type":"gauge","name":"g"}',
    '{"type":"float_counter","name":"f","sum":-0.5}',
    '{"type":[],"name":"g","value":1}',
    '{"type":"gage","name":"g","value":1}',
    '{"type":"counter","name":"c","count":-1}',
    '{"type":"counter","name":"c","count":9223372036854775808}',
    '{"type":"counter","name":"c","count":1.0}',
    '{"type":"counter","name":"c","count":true}',
    '{"type":"counter","name":"' + "n" * 513 + '","count":1}',
    '{"type":"counter","name":"c","count":1,"tags":{"":"x"}}',
    '{"type":"counter","name":"c","count":1,"tags":{"a":"' + "x" * 513 + '"}}',
    '{"type":"counter","name":"c","count":1,"tags":{"a":null}}',
    '{"type":"counter","name":"c\\u0000","count":1}',
    '{"type":"counter","name":"c\\udc00","count":1}',
    '{"type":"position","name":"p","start":1}',
    '{"type":"timer","name":"t","count":1,"p99":"fast"}',
    '{"type":"timer","name":"t","count":1,"m15_rate":null}',
    '{"type":"meter","name":"m","count":1,"m1_rate":null}',
    *(f'{{"type":"timer","name":"t","count":1,"sketch":{sketch}}}' for sketch in BAD_SKETCHES),
    *(f'{{"type":"buckets","name":"b","count":1,{buckets}}}' for buckets in BAD_BUCKETS),
    "7",
    "null",
]
"""Metrics, as JSON text, that are refused. The other metrics of their snapshot are accepted."""

ODD_METRICS: list[str] = [
    '{"type":"gauge","name":"g","value":9223372036854775808}',
    '{"type":"float_counter","name":"f","sum":0}',
    '{"type":"histogram","name":"h","count":1,"sum":null}',
    '{"type":"timer","name":"t","count":0}',
    *(
        '{"type":"timer","name":"t","count":1,"p99":' + sign + "9" * digits + "}"
        for sign in ("", "-")
        for digits in (309, 450, 5000)
    ),
    '{"type":"timer","name":"t","count":1,"min":null,"max":null,"sketch":null,"stddev":null}',
]
"""Unusual metrics, as JSON text, that are accepted."""

UNDECODABLE = {
    "empty": b"",
    "cut off": b"{",
    "another shape": b"[1]",
    "not UTF-8": b'{"\xff":"\xff","app":"\xff","query":"\xff","life":"\xff","clocks":{"\xff":1},"shards":"\xff"}',
    "nested too deep": b'{"x":' + b"[" * 100_000,  # Python 3.14 has no limit here, and finds no end
}
"""Description → value. For most rows the last two raise UnicodeDecodeError and RecursionError in msgspec itself."""

INVALID_TIMES = (
    "0001-01-01T00:00+23:59",
    "9999-12-31T23:59-23:59",
    "0001-01-01",
    "9999-12-31",
    "1969-12-31T23:59:59.999",
    "2262-01-01",
)
"""Times in ISO 8601 that are outside the range of a store, a broker or the calendar."""
