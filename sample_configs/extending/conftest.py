"""The suites' plugins: the fixture `spark`, and asserts that say what they saw."""

pytest_plugins = ["shared.testing", "tap_spark.testing"]
