"""Every rule of the validator: documents and the problems they have."""

from __future__ import annotations

import pytest
from batch_documents import calm, damaged, documents
from hypothesis import given

from shared.batch_config import validate
from shared.errors import SettingsError
from shared.settings.batch_settings import Validated
from shared.settings.checking import Problem

STRATEGY_NAMES = (
    "'fixed_size', 'time_window', 'memory_based', 'adaptive_size', 'low_latency', 'mega_batch'"
)
POLICY_NAMES = "'FailBatch', 'LogAndContinue', 'SendToDLQ', 'RetryWithBackoff'"
REQUIRED = f"config['batch']['strategy']: is required; allowed: {STRATEGY_NAMES}"
COUNT = "a whole number from 1 to 9223372036854775807"
PLACE = "allowed: a path, or a URL with a scheme in small letters"
STORAGE = {"root": "out"}
HUGE = 10**5000


def lines(config, side="target"):
    return [str(problem) for problem in validate(config, side).problems]


def config(**block):
    return {"batch_config": {"storage": STORAGE, **block}}


def batch(strategy, **keys):
    return {"batch": {"strategy": strategy, **keys}}


def failure(**keys):
    return {"failure": keys}


# (document, its one line of error)
ONE_LINE = [
    # Values that are not blocks.
    ({"batch_config": None}, "config['batch_config']: must be an object"),
    ({"batch_config": []}, "config['batch_config']: must be an object"),
    ({"batch_config": "x"}, "config['batch_config']: must be an object"),
    ({"batch_config": {"storage": 3}}, "config['batch_config']['storage']: must be an object"),
    ({"batch_config": {"encoding": "x"}}, "config['batch_config']['encoding']: must be an object"),
    ({"batch": None}, "config['batch']: must be an object"),
    ({"batch": []}, "config['batch']: must be an object"),
    ({"batch": "fixed_size"}, "config['batch']: must be an object"),
    ({"failure": "FailBatch"}, "config['failure']: must be an object"),
    ({"failure": 3}, "config['failure']: must be an object"),
    # Encoding.
    (
        config(encoding={"format": "json"}),
        "config['batch_config']['encoding']['format']: 'json' is not allowed; "
        "allowed: 'jsonl', 'parquet', 'csv', 'avro', 'arrow'; did you mean 'jsonl'?",
    ),
    (
        config(encoding={"format": "PARQUET"}),
        "config['batch_config']['encoding']['format']: 'PARQUET' is not allowed; "
        "allowed: 'jsonl', 'parquet', 'csv', 'avro', 'arrow'; did you mean 'parquet'?",
    ),
    (
        config(encoding={"compression": "snappy"}),
        "config['batch_config']['encoding']['compression']: 'snappy' is not a compression of "
        "format 'jsonl'; allowed: 'none', 'gzip', 'zstd', 'bzip2'",
    ),
    (
        config(encoding={"compression": "zstd", "compression_level": 3}),
        "config['batch_config']['encoding']['compression_level']: compression 'zstd' of format "
        "'jsonl' has no levels (with: 'gzip')",
    ),
    (
        config(encoding={"format": "csv", "compression_level": 12}),
        "config['batch_config']['encoding']['compression_level']: 12 is above the highest level of "
        "compression 'gzip', 9",
    ),
    (
        config(encoding={"format": "parquet", "compression": "bzip2"}),
        "config['batch_config']['encoding']['compression']: 'bzip2' is not a compression of "
        "format 'parquet'; allowed: 'none', 'snappy', 'gzip', 'zstd', 'lz4'",
    ),
    (
        config(encoding={"format": "csv", "compression": "deflate"}),
        "config['batch_config']['encoding']['compression']: 'deflate' is not a compression of "
        "format 'csv'; allowed: 'none', 'gzip', 'zstd', 'bzip2'",
    ),
    (
        config(encoding={"format": "avro", "compression": "gzip"}),
        "config['batch_config']['encoding']['compression']: 'gzip' is not a compression of "
        "format 'avro'; allowed: 'none', 'snappy', 'deflate', 'zstd'",
    ),
    (
        config(encoding={"compression": "gz"}),
        "config['batch_config']['encoding']['compression']: 'gz' is not allowed; allowed: "
        "'none', 'gzip', 'zstd', 'bzip2', 'snappy', 'lz4', 'deflate'; did you mean 'gzip'?",
    ),
    (
        config(encoding={"format": None}),
        "config['batch_config']['encoding']['format']: null is not allowed; allowed: "
        "'jsonl', 'parquet', 'csv', 'avro', 'arrow'",
    ),
    (
        config(encoding={"fromat": "csv"}),
        "config['batch_config']['encoding']['fromat']: unknown key; "
        "allowed: 'compression', 'compression_level', 'format'; did you mean 'format'?",
    ),
    # Storage.
    (
        {"batch_config": {"storage": {"root": ""}}},
        f"config['batch_config']['storage']['root']: '' is not allowed; {PLACE}",
    ),
    (
        {"batch_config": {"storage": {"root": 3}}},
        f"config['batch_config']['storage']['root']: 3 is not allowed; {PLACE}",
    ),
    (
        {"batch_config": {"storage": {"root": "s3://"}}},
        f"config['batch_config']['storage']['root']: 's3://' is not allowed; {PLACE}",
    ),
    (
        {"batch_config": {"storage": {"root": "S3://b"}}},
        f"config['batch_config']['storage']['root']: 'S3://b' is not allowed; {PLACE}",
    ),
    (
        {"batch_config": {"storage": {"root": "s3://key:pass@bucket"}}},
        "config['batch_config']['storage']['root']: 's3://***@bucket' holds a password; allowed: "
        "a URL without password; credentials come from options or the environment",
    ),
    (
        config(storage={"root": "out", "prefix": "../x"}),
        "config['batch_config']['storage']['prefix']: '../x' is not allowed; allowed: text "
        "without a leading '/', '..' as a folder, backslashes, control characters",
    ),
    (
        config(storage={"root": "out", "options": ["key"]}),
        "config['batch_config']['storage']['options']: the value (hidden) is not allowed; "
        "allowed: an object",
    ),
    (
        config(storage={"root": "out", "option": {}}),
        "config['batch_config']['storage']['option']: unknown key; "
        "allowed: 'options', 'prefix', 'root'; did you mean 'options'?",
    ),
    (
        config(storage={"root": "out", "params": {}}),
        "config['batch_config']['storage']['params']: unknown key; "
        "allowed: 'options', 'prefix', 'root'; did you mean 'options'?",
    ),
    # The rest of batch_config.
    (
        config(batch_size=0),
        f"config['batch_config']['batch_size']: 0 is not allowed; allowed: {COUNT}",
    ),
    (
        config(batch_size=-5),
        f"config['batch_config']['batch_size']: -5 is not allowed; allowed: {COUNT}",
    ),
    (
        config(batch_size="10"),
        f"config['batch_config']['batch_size']: '10' is not allowed; allowed: {COUNT}",
    ),
    (
        config(batch_size=True),
        f"config['batch_config']['batch_size']: true is not allowed; allowed: {COUNT}",
    ),
    (
        config(batch_size=1.5),
        f"config['batch_config']['batch_size']: 1.5 is not allowed; allowed: {COUNT}",
    ),
    (
        config(batch_size=HUGE),
        "config['batch_config']['batch_size']: an enormous number is not allowed; "
        f"allowed: {COUNT}",
    ),
    (
        config(include_streams="a"),
        "config['batch_config']['include_streams']: 'a' is not allowed; allowed: "
        "a list of texts that are not empty, such as ['public-*']",
    ),
    (
        config(exclude_streams=["a", 3]),
        "config['batch_config']['exclude_streams'][1]: 3 is not allowed; "
        "allowed: text that is not empty",
    ),
    (
        config(include_streams=["a", "b"], exclude_streams=["c", "b"]),
        "config['batch_config']['exclude_streams'][1]: 'b' is also in 'include_streams'; "
        "give it in one of them",
    ),
    (
        config(allowed_roots=[]),
        "config['batch_config']['allowed_roots']: a list is not allowed; "
        "allowed: a list of at least one path or URL",
    ),
    (
        config(allowed_roots=["a", ""]),
        f"config['batch_config']['allowed_roots'][1]: '' is not allowed; {PLACE}",
    ),
    (
        config(cleanup="true"),
        "config['batch_config']['cleanup']: 'true' is not allowed; allowed: true or false",
    ),
    (
        config(root="x"),
        "config['batch_config']['root']: unknown key; allowed: 'allowed_roots', 'batch_size', "
        "'cleanup', 'encoding', 'exclude_streams', 'include_streams', 'storage'; "
        "did you mean 'storage.root'?",
    ),
    (
        config(stroage={}),
        "config['batch_config']['stroage']: unknown key; allowed: 'allowed_roots', 'batch_size', "
        "'cleanup', 'encoding', 'exclude_streams', 'include_streams', 'storage'; "
        "did you mean 'storage'?",
    ),
    # The strategy.
    ({"batch": {"enable": True}}, REQUIRED),
    ({"batch": {"size": 5}}, REQUIRED),
    ({"batch.size": 5}, REQUIRED),
    (
        batch("FixedSize"),
        f"config['batch']['strategy']: 'FixedSize' is not allowed; allowed: {STRATEGY_NAMES}; "
        "did you mean 'fixed_size'?",
    ),
    (
        batch("mega-batch"),
        f"config['batch']['strategy']: 'mega-batch' is not allowed; allowed: {STRATEGY_NAMES}; "
        "did you mean 'mega_batch'?",
    ),
    (
        batch(None),
        f"config['batch']['strategy']: null is not allowed; allowed: {STRATEGY_NAMES}",
    ),
    (
        batch("fixed_size", sizee=5),
        "config['batch']['sizee']: unknown key; allowed: 'strategy', 'enable', 'size', 'timeout'; "
        "did you mean 'size'?",
    ),
    (
        batch("time_window", windw="1s"),
        "config['batch']['windw']: unknown key; allowed: 'strategy', 'enable', 'window'; "
        "did you mean 'window'?",
    ),
    (
        batch("low_latency", low_latency_wait="1s"),
        "config['batch']['low_latency_wait']: unknown key; allowed: 'strategy', 'enable', "
        "'max_size', 'max_wait', 'eager'; did you mean 'max_wait'?",
    ),
    (
        batch("fixed_size", memory_size="1 MiB"),
        "config['batch']['memory_size']: belongs to strategy 'memory_based', not to 'fixed_size'; "
        "allowed: 'strategy', 'enable', 'size', 'timeout'",
    ),
    (
        batch("fixed_size", max_size=5),
        "config['batch']['max_size']: belongs to strategy 'adaptive_size' and 'low_latency', not "
        "to 'fixed_size'; allowed: 'strategy', 'enable', 'size', 'timeout'",
    ),
    (
        batch("memory_based", size=5),
        "config['batch']['size']: belongs to strategy 'fixed_size' and 'mega_batch', not to "
        "'memory_based'; allowed: 'strategy', 'enable', 'memory_size'",
    ),
    (
        batch("adaptive_size", window="1s"),
        "config['batch']['window']: belongs to strategy 'time_window', not to 'adaptive_size'; "
        "allowed: 'strategy', 'enable', 'min_size', 'max_size', 'target_latency'",
    ),
    (
        batch("time_window", eager=True),
        "config['batch']['eager']: belongs to strategy 'low_latency', not to 'time_window'; "
        "allowed: 'strategy', 'enable', 'window'",
    ),
    (
        batch("fixed_size", parallel=True),
        "config['batch']['parallel']: belongs to strategy 'mega_batch', not to 'fixed_size'; "
        "allowed: 'strategy', 'enable', 'size', 'timeout'",
    ),
    (
        batch("adaptive_size", min_size=5000),
        "config['batch']['min_size']: 5000 is above config['batch']['max_size'] "
        "(1000, its default)",
    ),
    (
        batch("adaptive_size", max_size=5),
        "config['batch']['max_size']: 5 is below config['batch']['min_size'] (10, its default)",
    ),
    (
        batch("adaptive_size", min_size=7, max_size=6),
        "config['batch']['min_size']: 7 is above config['batch']['max_size'] (6)",
    ),
    (
        {**batch("fixed_size"), "batch.strategy": "time_window"},
        "config['batch.strategy']: 'time_window' differs from config['batch']['strategy'], which "
        "sets the same thing; give one of them",
    ),
    # The failure policy.
    (
        failure(policy="failbatch"),
        f"config['failure']['policy']: 'failbatch' is not allowed; allowed: {POLICY_NAMES}; "
        "did you mean 'FailBatch'?",
    ),
    (
        failure(policy="SendToDlq", dead_letter_path="x"),
        f"config['failure']['policy']: 'SendToDlq' is not allowed; allowed: {POLICY_NAMES}; "
        "did you mean 'SendToDLQ'?",
    ),
    (
        failure(policy="SendToDLQ"),
        f"config['failure']['dead_letter_path']: is required by policy 'SendToDLQ'; {PLACE}",
    ),
    (
        failure(policy="SendToDLQ", dead_letter_path=""),
        f"config['failure']['dead_letter_path']: '' is not allowed; {PLACE}",
    ),
    (
        failure(policy="FailBatch", dead_letter_path="x"),
        "config['failure']['dead_letter_path']: belongs to policy 'SendToDLQ', not to 'FailBatch'; "
        "allowed: 'policy'",
    ),
    (
        failure(max_retries=3),
        "config['failure']['max_retries']: belongs to policy 'RetryWithBackoff', not to "
        "'FailBatch' (the policy if none is given); allowed: 'policy'",
    ),
    (
        failure(policy="LogAndContinue", retry_backoff="1s"),
        "config['failure']['retry_backoff']: belongs to policy 'RetryWithBackoff', not to "
        "'LogAndContinue'; allowed: 'policy'",
    ),
    (
        failure(policy="SendToDLQ", dead_letter_path="x", max_retries=1),
        "config['failure']['max_retries']: belongs to policy 'RetryWithBackoff', not to "
        "'SendToDLQ'; allowed: 'policy', 'dead_letter_path'",
    ),
    (
        failure(policy="RetryWithBackoff", max_retries=0),
        "config['failure']['max_retries']: 0 is not allowed; "
        "allowed: a whole number from 1 to 1000",
    ),
    (
        failure(policy="RetryWithBackoff", max_retries=1001),
        "config['failure']['max_retries']: 1001 is not allowed; "
        "allowed: a whole number from 1 to 1000",
    ),
    (
        failure(policy="RetryWithBackoff", max_retry=1),
        "config['failure']['max_retry']: unknown key; allowed: 'policy', 'max_retries', "
        "'retry_backoff'; did you mean 'max_retries'?",
    ),
    # Between blocks.
    (
        {**batch("mega_batch", parallel=True), **failure(policy="RetryWithBackoff")},
        "config['batch']['parallel']: true conflicts with policy 'RetryWithBackoff', which keeps "
        "the order of batches; allowed: false, or another policy",
    ),
    (
        {
            **batch("mega_batch", parallel=True),
            **failure(policy="SendToDLQ", dead_letter_path="x"),
        },
        "config['batch']['parallel']: true conflicts with policy 'SendToDLQ', which keeps "
        "the order of batches; allowed: false, or another policy",
    ),
    # Dotted.
    (
        {"batch.strategy": "fixed_size", "batch.sizee": 5},
        "config['batch.sizee']: unknown dotted key; did you mean 'batch.size'?",
    ),
    (
        {"source.batch.windo": 5},
        "config['source.batch.windo']: unknown dotted key; did you mean 'source.batch.window'?",
    ),
    (
        {"sink.failure_stratgy": 5},
        "config['sink.failure_stratgy']: unknown dotted key; did you mean 'sink.failure_strategy'?",
    ),
    (
        {"failure.policy": "FailBatch"},
        "config['failure.policy']: unknown dotted key; did you mean 'failure_strategy'?",
    ),
    (
        {"failure.max_retries": 3},
        "config['failure.max_retries']: unknown dotted key; did you mean 'max_retries'?",
    ),
    (
        {"batch_config.batch_size": 3},
        "config['batch_config.batch_size']: unknown dotted key; write it nested, as "
        "config['batch_config']['batch_size']",
    ),
    (
        {"batch.strategy": "low_latency", "batch.max_size": 3},
        "config['batch.max_size']: unknown dotted key; did you mean 'batch.low_latency_max_size'?",
    ),
    (
        {"batch.strategy": "mega_batch", "batch.size": 3},
        "config['batch.size']: belongs to strategy 'fixed_size', not to 'mega_batch'; allowed: "
        "'batch.strategy', 'batch.enable', 'batch.mega_batch_size', 'batch.parallel', "
        "'batch.reuse_buffer'; did you mean 'batch.mega_batch_size'?",
    ),
    (
        {"max_retries": "3"},
        "config['max_retries']: belongs to policy 'RetryWithBackoff', not to 'FailBatch' (the "
        "policy if none is given); allowed: 'failure_strategy'",
    ),
]

VALUE_CASES = [
    (strategy, key, value)
    for strategy, key, values in [
        ("fixed_size", "size", (0, -1, 1.5, "5", "five", True, None, [], {}, 2**63, HUGE)),
        ("fixed_size", "timeout", (0, -1, 0.5, "0s", "-1s", "1 sec", "", True, None, [], "366d")),
        ("time_window", "window", (0, -1, "0ms", "soon", False, None, {}, HUGE, "9999999d")),
        ("memory_based", "memory_size", (0, -1, 0.5, "0", "1 Mb", "-1 MiB", "", True, None, [])),
        ("adaptive_size", "min_size", (0, -1, "1", True, None)),
        ("adaptive_size", "max_size", (0, -1, "1", True, None)),
        ("adaptive_size", "target_latency", (0, "0s", "fast", None)),
        ("low_latency", "max_size", (0, -1, "1", None)),
        ("low_latency", "max_wait", (0, "0ms", "0.9ms", None)),
        ("low_latency", "eager", (0, 1, "true", "yes", None, [])),
        ("mega_batch", "size", (0, -1, "1", 2**64, None)),
        ("mega_batch", "parallel", (0, 1, "false", None)),
        ("mega_batch", "reuse_buffer", (0, 1, "false", None)),
        ("fixed_size", "enable", (0, 1, "true", None)),
    ]
    for value in values
]


@pytest.mark.parametrize(("document", "line"), ONE_LINE, ids=[line[:70] for _, line in ONE_LINE])
def test_names_what_is_wrong(document, line):
    assert lines(document) == [line]


@pytest.mark.parametrize(
    ("strategy", "key", "value"),
    VALUE_CASES,
    ids=[f"{strategy}.{key}-{number}" for number, (strategy, key, _) in enumerate(VALUE_CASES)],
)
def test_names_a_wrong_value_once(strategy, key, value):
    problems = validate(batch(strategy, **{key: value}), "target").problems
    assert [problem.path for problem in problems] == [("batch", key)]
    assert problems[0].allowed
    assert problems[0].value is not None


def test_gives_all_problems_in_one_answer():
    document = {
        "batch_config": {"encoding": {"format": "jason"}, "storage": {"rot": "x"}, "batch_size": 0},
        "batch": {"strategy": "adaptive_size", "min_size": -1, "target_latency": "soon", "size": 1},
        "failure": {"policy": "RetryWithBackoff", "max_retries": 5000, "retry_backof": 1},
        "sink.batch.foo": 1,
        "sink.retry_backoff": "x",
    }
    assert {problem.path for problem in validate(document, "tap").problems} == {
        ("batch_config", "encoding", "format"),
        ("batch_config", "storage", "rot"),
        ("batch_config", "storage", "root"),
        ("batch_config", "batch_size"),
        ("batch", "min_size"),
        ("batch", "target_latency"),
        ("batch", "size"),
        ("failure", "max_retries"),
        ("failure", "retry_backof"),
        ("sink.batch.foo",),
    }
    assert ("sink.retry_backoff",) in {p.path for p in validate(document, "target").problems}


@pytest.mark.parametrize(
    ("side", "expected"),
    [
        ("tap", [f"config['batch_config']['storage']['root']: is required; {PLACE}"]),
        ("target", []),
        (None, [f"config['batch_config']['storage']['root']: is required; {PLACE}"]),
    ],
)
@pytest.mark.parametrize(
    "block",
    [{"batch_size": 5}, {"storage": {"prefix": "a"}}, {"encoding": {"format": "csv"}}],
    ids=["batch_size", "prefix", "format"],
)
def test_the_root_is_required_where_files_are_written(block, side, expected):
    assert lines({"batch_config": block}, side) == expected


@pytest.mark.parametrize("key", ["allowed_roots", "cleanup"])
def test_settings_of_the_target_are_errors_in_the_tap(key):
    value = {"allowed_roots": ["out"], "cleanup": True}[key]
    document = config(**{key: value})
    expected = f"config['batch_config'][{key!r}]: is a setting of target-spark only"
    assert lines(document, "tap") == [expected]
    assert lines(document, "target") == []
    assert lines(document, None) == []


@pytest.mark.parametrize("key", ["allowed_roots", "cleanup"])
def test_a_shared_document_with_settings_of_the_target_needs_no_root(key):
    value = {"allowed_roots": ["out"], "cleanup": True}[key]
    assert lines({"batch_config": {key: value}}, None) == []


@pytest.mark.parametrize("side", ["tap", "target", None])
@pytest.mark.parametrize(
    "document",
    [
        {},
        {"batch_config": {}},
        {"batch_config": {"encoding": {}, "storage": {}}},
        {"batch": {}},
        {"failure": {}},
        {"batch_config": {}, "batch": {}, "failure": {}},
        {"path": "out", "spark": {"master": "local[2]"}, "batch_size_rows": 5},
    ],
)
def test_an_empty_block_counts_as_not_given(document, side):
    validated = validate(document, side)
    assert validated.problems == ()
    assert validated.batch_config is None
    assert validated.strategy is None
    assert validated.failure.policy == "FailBatch"


def test_rules_are_silent_where_a_value_they_compare_is_wrong():
    assert len(lines(batch("adaptive_size", min_size="x", max_size=1))) == 1
    assert len(lines(config(encoding={"format": "x", "compression": "lz4"}))) == 1
    assert len(lines(config(include_streams=["a", ""], exclude_streams=["a"]))) == 1
    assert len(lines({**batch("mega_batch", parallel=1), **failure(policy="SendToDLQ")})) == 2


def test_a_wrong_strategy_hides_no_wrong_value():
    paths = [problem.path for problem in validate(batch("fixed", size=0), "target").problems]
    assert paths == [("batch", "strategy"), ("batch", "size")]


def test_a_missing_strategy_hides_no_unknown_key():
    paths = [problem.path for problem in validate({"batch": {"sizee": 1}}, "target").problems]
    assert paths == [("batch", "sizee"), ("batch", "strategy")]


def test_a_disabled_strategy_is_still_checked():
    assert lines({"batch": {"enable": False}}) == []
    assert lines({"batch": {"enable": False, "size": 5}}) == []
    assert len(lines({"batch": {"enable": False, "size": 0}})) == 1
    assert len(lines(batch("fixed_size", enable=False, window="1s"))) == 1


@pytest.mark.parametrize("policy", ["FailBatch", "LogAndContinue"])
def test_parallel_loading_goes_with_policies_that_need_no_order(policy):
    assert lines({**batch("mega_batch", parallel=True), **failure(policy=policy)}) == []


def test_check_raises_all_problems_one_line_each():
    validated = validate({**batch("fixed_size", size=0, x=1), **failure(policy="x")}, "target")
    with pytest.raises(SettingsError) as caught:
        validated.check()
    assert caught.value.exit_code == 2
    assert caught.value.problems == tuple(map(str, validated.problems))
    assert len(caught.value.problems) == 3
    assert not any("\n" in line for line in caught.value.problems)


def test_check_returns_right_settings():
    validated = validate(batch("time_window"), "target")
    assert validated.check() is validated
    assert Validated().check() == Validated()


def test_a_problem_writes_itself_in_one_line():
    problem = Problem(("a", 1), "is\nwrong", "3", "1 or 2", "2")
    assert str(problem) == "config['a'][1]: is wrong; allowed: 1 or 2; did you mean '2'?"
    assert str(Problem(("a",), "is wrong")) == "config['a']: is wrong"


def test_validating_changes_nothing():
    document = config(include_streams=["a"], storage={"root": "x", "options": {"key": "k"}})
    before = repr(document)
    validate(document, "tap")
    assert repr(document) == before


@calm
@given(damaged())
def test_any_document_gets_an_answer(document):
    for side in ("tap", "target", None):
        validated = validate(document, side)
        assert len(set(validated.problems)) == len(validated.problems)
        for line in map(str, validated.problems):
            assert line.startswith("config['")
            assert "\n" not in line


@calm
@given(documents())
def test_right_blocks_have_no_problem_but_between_them(document):
    for problem in validate(document, "tap").problems:
        assert "conflicts with policy" in problem.message


@calm
@given(documents())
def test_a_shared_document_is_wrong_where_it_is_wrong_for_a_program(document):
    shared = set(validate(document, None).problems)
    single = {*validate(document, "tap").problems, *validate(document, "target").problems}
    assert shared == single


@pytest.mark.parametrize(("value", "text"), [("hunter2", None), (5, "5"), (["hunter2"], "a list")])
def test_text_under_an_unknown_key_is_hidden(value, text):
    (problem,) = validate(batch("fixed_size", secret=value), "target").problems
    assert problem.value == text
    assert "hunter2" not in repr(problem)


def test_only_blocks_that_settings_fill_in_say_nothing() -> None:
    unset = {"batch_config": {"encoding": {}, "storage": {}}, "batch": {}, "failure": {}}
    assert validate(unset) == validate({})
    assert validate({"batch": {"encoding": {}, "storage": {}}}).problems
    assert validate({"batch.max_size": {}}).problems


@pytest.mark.parametrize("side", ["tap", "target"])
def test_nulls_of_the_sdk_are_not_set(side):
    null = config(encoding={"compression": None}, storage={"root": "out", "prefix": None})
    assert validate(null, side) == validate(config(), side)
