#!/usr/bin/env bash
# The demo of `make demo`: CSV files in, tap-spark | target-spark, Parquet out, state kept.
# Run from the root of the repository with both programs on PATH.
set -euo pipefail

here=sample_configs/demo
work=.demo
rm -rf "$work"
mkdir -p "$work"

say() { printf '\n== %s\n' "$*"; }

# One run of the pipe. The target writes a STATE line after each commit; the last one is where the
# next run starts. It is kept also where the run fails later on; a run without news keeps the old.
load() {
    local state=() status=0
    if [[ -s $work/state.json ]]; then state=(--state "$work/state.json"); fi
    tap-spark --config "$here/tap.json" ${state[@]+"${state[@]}"} |
        target-spark --config "$here/target.json" >"$work/states.jsonl" || status=$?
    tail -n 1 "$work/states.jsonl" >"$work/state.new"
    if [[ -s $work/state.new ]]; then mv "$work/state.new" "$work/state.json"; fi
    rm -f "$work/state.new"
    return "$status"
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

say "done: the rows are in $work/loaded/orders, the state in $work/state.json"
