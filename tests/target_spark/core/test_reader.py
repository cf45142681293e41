"""The reader against a plain line-by-line one, and on every odd input."""

from __future__ import annotations

import json
import tracemalloc

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.errors import MessageError
from shared.formats.file_formats import Encoding
from target_spark.core import events as ev
from target_spark.core.reader import Reader

COMPACT = '{"type":"RECORD","stream":"%s","record":{"id":%d}}'
SPACED = '{"type": "RECORD", "stream": "%s", "record": {"id": %d}}'
TIMED = (
    '{"type":"RECORD","stream":"%s","record":{"id":%d},'
    '"time_extracted":"2026-11-21T06:20:21.224137+00:00"}'
)
SWAPPED = '{"stream":"%s","type":"RECORD","record":{"id":%d}}'
LAST = '{"record":{"id":%2$d},"stream":"%1$s","type":"RECORD"}'


def read(data: bytes, block: int = 1 << 20, **options) -> list[ev.InputEvent]:
    reader, events = Reader(**options), []
    for start in range(0, len(data), block):
        events += reader.feed(data[start : start + block])
    return events + list(reader.end())


def flat(events: list[ev.InputEvent]) -> list[tuple]:
    """Return one entry per line, independent of the runs."""
    out = []
    for event in events:
        if not isinstance(event, ev.RecordsSeen):
            out.append(event)
            continue
        lines = bytes(event.data).splitlines(keepends=True)
        assert len(lines) == event.lines
        assert all(line.endswith(b"\n") for line in lines)
        for number, line in enumerate(lines):
            out.append((event.stream, line, event.first_line + number, event.version))
    return out


def naive(data: bytes) -> list[tuple]:
    out = []
    for number, line in enumerate(data.split(b"\n"), 1):
        if not line.strip():
            continue
        message = json.loads(line)
        kind = message["type"]
        if kind == "RECORD":
            out.append((message["stream"], line + b"\n", number, message.get("version")))
        elif kind == "STATE":
            out.append(("STATE", message["value"], number))
        else:
            out.append((kind, message["stream"], number))
    return out


def same_shape(events: list[tuple]) -> list[tuple]:
    out = []
    for event in events:
        if isinstance(event, ev.StateSeen):
            out.append(("STATE", json.loads(event.value), event.line))
        elif isinstance(event, ev.SchemaSeen):
            out.append(("SCHEMA", event.stream, event.line))
        elif isinstance(event, ev.VersionSeen):
            out.append(("ACTIVATE_VERSION", event.stream, event.line))
        elif isinstance(event, ev.BatchSeen):
            out.append(("BATCH", event.stream, event.line))
        else:
            out.append(event)
    return out


def error(data: bytes, block: int = 1 << 20, **options) -> MessageError:
    with pytest.raises(MessageError) as caught:
        read(data, block, **options)
    return caught.value


def test_a_run_of_one_stream_is_one_event_without_a_copy():
    lines = "".join(TIMED % ("users", n) + "\n" for n in range(1000)).encode()
    (event,) = read(lines)
    assert (event.stream, event.lines, event.first_line, event.version) == ("users", 1000, 1, None)
    assert isinstance(event.data, memoryview)
    assert event.data == lines


def test_streams_that_alternate_are_runs_of_their_own():
    text = "\n".join(COMPACT % (s, n) for n, s in enumerate("aabba")) + "\n"
    actual = [(e.stream, e.lines, e.first_line) for e in read(text.encode())]
    assert actual == [("a", 2, 1), ("b", 2, 3), ("a", 1, 5)]


def test_one_stream_name_that_begins_like_another():
    text = "\n".join(COMPACT % (s, 1) for s in ["a", "ab", "a"]) + "\n"
    assert [e.stream for e in read(text.encode())] == ["a", "ab", "a"]


@pytest.mark.parametrize("shape", [COMPACT, SPACED, TIMED, SWAPPED])
def test_usual_spellings_are_runs(shape):
    text = "".join(shape % ("s", n) + "\n" for n in range(50)).encode()
    (event,) = read(text)
    assert (event.stream, event.lines) == ("s", 50)


@pytest.mark.parametrize(
    "line",
    [
        '{"record":{"id":1},"stream":"s","type":"RECORD"}',
        '{"type":"RECORD","record":{"id":1},"stream":"s"}',
        '{"type":"RECORD","stream":"s","time_extracted":"2026-11-21T06:20:21Z","record":{"id":1}}',
        ' {\t"type" : "RECORD" , "stream" : "s" , "record" : { "id" : 1 } } ',
        '{"type":"RECORD","stream":"\\u0073","record":{}}',
        '{"\\u0074ype":"RECORD","stream":"s","record":{}}',
        '{"type":"RECORD","stream":"s","record":{"id":1},"extra":{"record":{}}}',
        '{"type":"RECORD","stream":"s","record":{"t":"\\"type\\":\\"STATE\\""}}',
        '{"type":"RECORD","stream":"s","record":{"type":"STATE","value":{}}}',
        '{"type":"RECORD","stream":"s","record":{"n":NaN}}',
        '{"record":{"n":NaN},"type":"RECORD","stream":"s"}',
    ],
)
def test_records_of_any_shape_are_staged_as_received(line):
    data = (line + "\n").encode() * 3
    assert flat(read(data)) == [("s", (line + "\n").encode(), n, None) for n in (1, 2, 3)]


def test_stream_names_with_escapes_and_other_letters():
    names = [
        'a"b',
        "a\\b",
        "a\nb",
        "naïve",
        "流",
        "a}b",
        "\ud83d\ude00".encode("utf-16", "surrogatepass").decode("utf-16"),
    ]
    for name in names:
        for ascii_only in (True, False):
            head = json.dumps(name, ensure_ascii=ascii_only)
            line = f'{{"type":"RECORD","stream":{head},"record":{{}}}}\n'.encode()
            (event,) = read(line * 2)
            assert (event.stream, event.lines) == (name, 2)


@pytest.mark.parametrize(
    ("tail", "version"),
    [
        ("", None),
        (',"version":5', 5),
        (',"version":5,"time_extracted":"2026-11-21T06:20:21Z"', 5),
        (',"time_extracted":"2026-11-21T06:20:21Z","version":5', 5),
        (' , "version" : 5 ', 5),
        (',"version":5,"sequence":7', 5),
        (',"sequence":{"a":1},"version":5', 5),
        (',"version":null', None),
        (',"version":5,"more":"' + "x" * 300 + '"', 5),
        (',"more":"\\"version\\":5}"', None),
    ],
)
@pytest.mark.parametrize("record", ['{"a":1}', '{"version":9}', '{"a":{},"version":9}', "{}"])
def test_the_version_of_records(tail, version, record):
    line = f'{{"type":"RECORD","stream":"s","record":{record}{tail}}}\n'.encode()
    assert json.loads(line).get("version") == version
    assert [e[3] for e in flat(read(line * 3))] == [version] * 3
    assert flat(read(b'{"type":"STATE","value":1}\n' + line))[1][3] == version


def test_bounds_beyond_64_bits_stay_exact():
    line = b'{"type":"SCHEMA","stream":"s","schema":{"maximum":99999999999999999999999}}\n'
    (event,) = read(line)
    assert event.schema == {"maximum": 99999999999999999999999}


def test_a_change_of_version_cuts_a_run():
    line = '{"type":"RECORD","stream":"s","record":{},"version":%d}\n'
    data = "".join(line % n for n in (1, 1, 2, 2, 2, 3)).encode()
    actual = [(e.version, e.lines, e.first_line) for e in read(data)]
    assert actual == [(1, 2, 1), (2, 3, 3), (3, 1, 6)]


@pytest.mark.parametrize("version", [f"{2**63}", f"{-(10**20)}", "1.5", '"5"', "true"])
@pytest.mark.parametrize("block", [1 << 20, 7])
def test_a_version_that_no_table_can_store_is_an_error(version, block):
    line = f'{{"type":"RECORD","stream":"s","record":{{}},"version":{version}}}\n'
    problem = str(error((COMPACT % ("s", 1) + "\n" + line * 3).encode(), block))
    assert "stream 's', line 2: RECORD with a 'version' that is not an integer of 64" in problem


def test_records_between_wrong_versions_are_read():
    line = '{"type":"RECORD","stream":"s","record":{},"version":%s}\n'
    data = "".join(line % text for text in ("1e3", "1", "1", f"{2**63}", f"{2**63}")).encode()
    actual = read(data, lenient=True)
    assert [event.line for event in actual if isinstance(event, ev.LineRejected)] == [1, 4, 5]
    assert [e.lines for e in actual if isinstance(e, ev.RecordsSeen)] == [2]


def test_messages_other_than_records():
    data = b"""\
{"type":"SCHEMA","stream":"s","schema":{"properties":{}},"key_properties":["id"]}
{"type":"SCHEMA","stream":"t","schema":{}}
{"type":"SCHEMA","stream":"t","schema":{},"key_properties":null,"bookmark_properties":["x"]}
{"type":"BATCH","stream":"s","encoding":{"format":"jsonl","compression":"gzip","x":1},"manifest":["a","b"],"version":3}
{"type":"BATCH","stream":"s","encoding":{"format":"parquet"},"manifest":[]}
{"type":"STATE","value":{"a":1}}
{"type":"ACTIVATE_VERSION","stream":"s","version":7}
{"type":"KEYS","stream":"s"}
{"type":"KEYS","stream":"s","encoding":{"format":"parquet"},"manifest":[]}
"""
    assert read(data) == [
        ev.SchemaSeen("s", {"properties": {}}, ("id",), 1),
        ev.SchemaSeen("t", {}, (), 2),
        ev.SchemaSeen("t", {}, (), 3, has_bookmark=True),
        ev.BatchSeen("s", Encoding("jsonl", "gzip"), ("a", "b"), 4, 3),
        ev.BatchSeen("s", Encoding("parquet"), (), 5),
        ev.StateSeen(b'{"a":1}', 6),
        ev.VersionSeen("s", 7, 7),
        ev.KeysSeen("s", None, (), 8),
        ev.KeysSeen("s", Encoding("parquet"), (), 9),
    ]


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ('{"type":"STATE","value":{"b": 1.50, "a":"\\u00e9"}}', '{"b": 1.50, "a":"\\u00e9"}'),
        ('{"type": "STATE", "value": {"bookmarks": {}}} ', '{"bookmarks": {}}'),
        ('{"value":{"a":1},"type":"STATE"}', '{"a":1}'),
        ('{"type":"STATE","value":{"a":1},"x":{"b":2}}', '{"a":1}'),
        ('{"type":"STATE","value":{"a":1} , "x" : [1] }', '{"a":1}'),
        ('{"type":"STATE","x":"}","value":{"é":"流"}}', '{"é":"流"}'),
        ('{"type":"STATE","value":1,"value":2}', "2"),
        ('{"type":"STATE","value":null}', "null"),
        ('{"type":"STATE","value":1e400}', "1e400"),
        ('{"type":"STATE","value":123456789012345678901234567890.10}',
         "123456789012345678901234567890.10"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("ending", ["\n", "\r\n", ""])
def test_state_is_kept_byte_for_byte(line, value, ending):
    assert read((line + ending).encode()) == [ev.StateSeen(value.encode(), 1)]


def test_blank_lines_bom_and_crlf_are_fine_and_counted():
    text = "\n \t\r\n" + COMPACT % ("s", 1) + "\r\n\n" + COMPACT % ("s", 2) + "\r\n"
    actual = flat(read(b"\xef\xbb\xbf" + text.encode()))
    assert [(entry[0], entry[2]) for entry in actual] == [("s", 3), ("s", 5)]


def test_a_bom_alone_or_nothing_is_an_empty_input():
    assert read(b"") == read(b"\xef\xbb\xbf") == read(b"\n") == []


def test_the_last_line_may_lack_its_newline():
    assert flat(read((COMPACT % ("s", 1)).encode())) == [
        ("s", (COMPACT % ("s", 1)).encode() + b"\n", 1, None)
    ]


@pytest.mark.parametrize("cut", range(1, len(COMPACT % ("s", 1))))
def test_a_tap_that_died_within_a_line_is_noticed(cut):
    whole = (COMPACT % ("s", 1)).encode()
    problem = error(whole + b"\n" + whole[:cut])
    assert problem.where.line == 2


@pytest.mark.parametrize(
    ("line", "parts"),
    [
        (b"not json", ["line 3", "not a valid JSON line", "not json"]),
        (b"\xff\xfe{}", ["line 3", "not a valid JSON line"]),
        (b'{"type":"RECORD","stream":"s\xff","record":{}}', ["line 3", "not a valid JSON"]),
        (b"[1]", ["line 3", "not a Singer message"]),
        (b"1", ["line 3", "not a Singer message"]),
        (b'{"a":1}', ["line 3", "not a Singer message"]),
        (b'{"type":5}', ["line 3", "not a Singer message"]),
        (b'{"type":"NONSENSE"}', ["line 3", "unknown message type 'NONSENSE'"]),
        (b'{"type":"RECORD","record":{}}', ["RECORD without a 'stream'"]),
        (b'{"type":"RECORD","stream":"s"}', ["stream 's'", "without a 'record' object"]),
        (b'{"type":"RECORD","stream":"s","record":[]}', ["stream 's'", "without a 'record'"]),
        (b'{"type":"RECORD","stream":"s","record":null}', ["stream 's'", "without a 'record'"]),
        (b'{"type":"SCHEMA","stream":"s"}', ["stream 's'", "SCHEMA without a 'schema'"]),
        (b'{"type":"SCHEMA","stream":"s","schema":{},"key_properties":"id"}', ["key_properties"]),
        (b'{"type":"SCHEMA","stream":"s","schema":{},"key_properties":[1]}', ["key_properties"]),
        (b'{"type":"BATCH","stream":"s","manifest":[]}', ["BATCH without an 'encoding'"]),
        (b'{"type":"BATCH","stream":"s","encoding":{"format":"jsonl"}}', ["'manifest'"]),
        (b'{"type":"BATCH","stream":"s","encoding":{"format":"jsonl"},"manifest":null}',
         ["BATCH without a 'manifest'"]),
        (b'{"type":"KEYS","stream":"s","encoding":{"format":"jsonl"}}', ["KEYS", "'manifest'"]),
        (b'{"type":"KEYS","stream":"s","encoding":{"format":"jsonl"},"manifest":null}',
         ["KEYS without a 'manifest'"]),
        (b'{"type":"KEYS","stream":"s","manifest":[]}', ["KEYS without an 'encoding'"]),
        (b'{"type":"BATCH","stream":"s","encoding":{"format":"jsonl","compression":1},'
         b'"manifest":[]}', ["'compression'"]),
        (b'{"type":"STATE"}', ["STATE without a 'value'"]),
        (b'{"type":"ACTIVATE_VERSION","stream":"s"}', ["without a 'version'"]),
        (b'{"type":"ACTIVATE_VERSION","stream":"s","version":"x"}', ["not an integer"]),
        (b'{"type":"ACTIVATE_VERSION","stream":"s","version":true}', ["not an integer"]),
    ],
)  # fmt: skip
@pytest.mark.parametrize("block", [1 << 20, 7])
def test_what_is_wrong_is_said_with_its_line(line, parts, block):
    before = (COMPACT % ("s", 1) + "\n").encode() * 2
    problem = error(before + line + b"\n" + before, block)
    assert all(part in str(problem) for part in ["line 3", *parts]), str(problem)
    assert "\n" not in str(problem)


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_utf_16_is_named(encoding):
    problem = error(f"\ufeff{COMPACT % ('s', 1)}\n".encode(encoding) * 2)
    assert str(problem).startswith("line 1: the input is UTF-16, not UTF-8 (PowerShell's `>`")


def nested(levels: int) -> str:
    return '{"items":' * levels + "{}" + "}" * levels


@pytest.mark.parametrize("levels", [200, 480, 990, 1010])
@pytest.mark.parametrize("lenient", [False, True])
def test_a_schema_nested_too_deeply_is_an_error_with_its_line(levels, lenient):
    line = f'\n{{"type":"SCHEMA","stream":"s","schema":{nested(levels)}}}\n'
    with pytest.raises(MessageError, match="line 2: SCHEMA with a 'schema' that is nested"):
        list(Reader(lenient=lenient).feed(line.encode()))


@pytest.mark.parametrize("levels", [900, 960, 990, 995, 1000, 1010])
def test_a_state_nested_deeply_is_whole_or_an_error_with_its_line(levels):
    """The depth that Python's parser accepts depends on its version."""
    line = f'\n{{"type":"STATE","value":{nested(levels)},"x":1}}\n'.encode()
    try:
        events = read(line)
    except MessageError as problem:
        assert problem.where.line == 2
    else:
        assert events == [ev.StateSeen(nested(levels).encode(), 2)]


def test_nesting_up_to_the_bound_is_fine():
    (event,) = read(b'{"type":"SCHEMA","stream":"s","schema":%s}\n' % nested(199).encode())
    assert isinstance(event, ev.SchemaSeen)
    text = nested(900).encode()
    assert read(b'{"type":"STATE","value":%s}\n' % text) == [ev.StateSeen(text, 1)]


def test_a_number_too_long_for_python_is_an_error_with_its_line():
    number = b"1" * 5000
    problem = error(b'{"type":"SCHEMA","stream":"s","schema":{"maximum":%s}}\n' % number)
    assert problem.where.line == 1


def test_everything_before_a_bad_line_has_been_told():
    reader, seen = Reader(), []
    with pytest.raises(MessageError):
        for event in reader.feed(
            (COMPACT % ("s", 1)).encode() + b'\n{"type":"STATE","value":1}\n!\n'
        ):
            seen.append(event)
    assert [type(event) for event in seen] == [ev.RecordsSeen, ev.StateSeen]


def test_an_excerpt_is_short():
    assert len(str(error(b"x" * 100_000 + b"\n"))) < 200


def test_a_line_beyond_the_limit_is_an_error():
    problem = error(b'{"type":"STATE","value":1}\n' + b"x" * 5000, 100, max_line_bytes=1000)
    assert problem.where.line == 2
    assert "longer than 1000 bytes" in str(problem)


def test_a_line_longer_than_the_block_is_carried():
    line = (COMPACT % ("s" * 5000, 1)).encode() + b"\n"
    (event,) = read(line, 64)
    assert event.data == line


def test_a_head_that_never_ends_costs_no_memory():
    line = b'{"type":"RECORD","stream":"' + b"\\n" * 1_000_000 + b"\n"
    reader = Reader()
    tracemalloc.start()
    assert reader._head_at(line, 0) is None
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 100_000


SAMPLE = (
    '\ufeff{"type":"SCHEMA","stream":"s","schema":{}}\n'
    + "".join(COMPACT % ("s", n) + "\n" for n in range(3))
    + "\r\n"
    + SPACED % ("流", 1)
    + "\r\n"
    + '{"type":"STATE","value":{"é":1}}\n'
    + TIMED % ("s", 9)
).encode()


@pytest.mark.parametrize("block", range(1, len(SAMPLE) + 1))
def test_every_block_size_tells_the_same(block):
    assert flat(read(SAMPLE, block)) == flat(read(SAMPLE))


@pytest.mark.parametrize("cut", range(1, len(SAMPLE)))
def test_every_cut_tells_the_same(cut):
    reader = Reader()
    events = list(reader.feed(SAMPLE[:cut])) + list(reader.feed(SAMPLE[cut:]))
    assert flat(events + list(reader.end())) == flat(read(SAMPLE))


names = st.one_of(st.sampled_from(["a", "b", "ab"]), st.text(min_size=1, max_size=5))
values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-(2**63), 2**64 - 1), st.text()),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=6,
)
records = st.dictionaries(
    st.sampled_from(["id", "type", "stream", "record", "version", "value"]), values, max_size=4
)
messages = st.one_of(
    st.fixed_dictionaries(
        {"type": st.just("RECORD"), "stream": names, "record": records},
        optional={
            "version": st.integers(0, 3),
            "time_extracted": st.just("2026-11-21T06:20:21Z"),
            "extra": values,
        },
    ),
    st.fixed_dictionaries({"type": st.just("STATE"), "value": values}, optional={"x": values}),
    st.fixed_dictionaries({"type": st.just("SCHEMA"), "stream": names, "schema": records}),
    st.fixed_dictionaries(
        {
            "type": st.just("ACTIVATE_VERSION"),
            "stream": names,
            "version": st.integers(-(2**63), 2**63 - 1),
        }
    ),
)
usable = st.text(alphabet=st.characters(exclude_categories=["Cs"]))


@st.composite
def spelled(draw) -> bytes:
    message = draw(messages)
    if draw(st.booleans()):
        keys = draw(st.permutations(list(message)))
        message = {key: message[key] for key in keys}
    if "record" in message and draw(st.booleans()):
        message["record"] |= {"id": "x" * 600}
    separators = draw(st.sampled_from([(",", ":"), (", ", ": "), (" ,\t", " : ")]))
    text = json.dumps(message, separators=separators, ensure_ascii=draw(st.booleans()))
    ending = draw(st.sampled_from(["\n", "\n", "\r\n", "\n\n", " \n"]))
    return (text + ending).encode("utf-8", "replace")


@settings(max_examples=400, deadline=None)
@given(st.lists(spelled(), max_size=20), st.integers(1, 300) | st.just(9000), st.booleans())
def test_agrees_with_a_plain_reader(lines, block, cut_newline):
    data = b"".join(lines)
    if cut_newline:
        data = data.rstrip(b"\r\n \t")
    assert same_shape(flat(read(data, block))) == naive(data)


@settings(max_examples=200, deadline=None)
@given(values, st.booleans())
def test_state_text_is_the_text_of_the_value(value, first):
    text = orjson.dumps(value, option=orjson.OPT_INDENT_2).replace(b"\n", b" ")
    line = b'{"type":"STATE","value":' + text + b"}"
    if first:
        line = b'{"value":' + text + b',"type":"STATE"}'
    assert read(line + b"\n") == [ev.StateSeen(text, 1)]
