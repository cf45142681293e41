#!/usr/bin/env bash
# `make demo`: load CSV files into Parquet by tap-spark | target-spark, and keep the state.
# Run this from the root of the repository with both programs on PATH.
set -euo pipefail

here=sample_configs/demo
work=.demo
rm -rf "$work"
mkdir -p "$work"

say() { printf '\n== %s\n' "$*"; }

load() {
    tap-spark --config "$here/tap.json" --state "$work/state.json" |
        target-spark --config "$here/target.json" --state "$work/state.json" >/dev/null
}

show() {
    python "$here/show.py" "$work/loaded/orders" "$1"
    echo "state: $(cat "$work/state.json")"
}

say "1. first run: 3,000 orders in three CSV files"
python "$here/make_data.py" "$work/orders" 3000
load
show 3000

say "2. 60 orders are appended; only they are read"
python "$here/make_data.py" "$work/orders" 60 3001
load
show 3060

say "3. nothing new: nothing is read"
load
show 3060

say "4. 3,000,000 orders, 306 MiB: beyond \`spark_above\`, so Spark reads and loads them"
python "$here/make_data.py" --large "$work/large" 3000000
tap-spark --config "$here/tap-large.json" --summary "$work/tap.summary.json" |
    target-spark --config "$here/target.json" --summary "$work/target.summary.json" >"$work/large.jsonl"
python "$here/show.py" --large "$work/loaded/large_orders" 3000000 "$work"/{tap,target}.summary.json
rm -rf "$work/large"

say "done: the rows are in $work/loaded/orders, the state in $work/state.json"
