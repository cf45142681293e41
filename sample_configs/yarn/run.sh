#!/usr/bin/env bash
# Load orders on YARN; on a machine with Hadoop's configuration, in a folder with the settings.
set -eu -o pipefail
export HADOOP_CONF_DIR=${HADOOP_CONF_DIR:-/etc/hadoop/conf}
cd "$(dirname "$0")"
tap-spark --config tap.json --state state.json \
  | target-spark --config target.json --state state.json > /dev/null
