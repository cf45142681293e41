#!/usr/bin/env bash
# The first ten minutes: from one file to a job that runs every night. Read it, or run it in an empty folder:
#
#   python3 -m venv env && . env/bin/activate
#   pip install 'singer-spark[delta,postgresql]'
#   DATABASE_URL=postgresql://reader@localhost/shop bash run.sh
set -euo pipefail

# 1. A file into a folder of Parquet.
printf 'id,name,day\n1,Zoë,2026-01-30\n2,Ann,2026-01-31\n3,Bo,2026-02-01\n' > orders.csv
tap-spark orders.csv | target-spark loaded/ > state.jsonl

# 2. Look at the file, and at what was loaded.
tap-spark preview orders.csv
tap-spark preview loaded/orders

# 3. Change the file and load it again: the table has the rows that the file has now.
printf 'id,name,day\n1,Zoë,2026-01-30\n2,Anna,2026-01-31\n' > orders.csv
tap-spark orders.csv | target-spark loaded/ > state.jsonl
tap-spark preview loaded/orders

# 4. A database by its URL: what it has, then some of it.
tap-spark "$DATABASE_URL" --discover > catalog.json
tap-spark "$DATABASE_URL" --select 'public.customers.*' --select '!*.ssn' | target-spark loaded/ > state.jsonl

# 5. A lake, and both ends in one command that keeps state, history and a report.
cat > job.yml <<'END'
jobs:
  orders:
    tap:
      streams:
        - {name: orders, format: csv, path: orders.csv, key_properties: [id], replication_method: INCREMENTAL}
    target: {format: delta, path: lake, load_method: upsert}
END
singer-spark run job.yml
echo '3,Bo,2026-02-01' >> orders.csv
singer-spark run job.yml
singer-spark runs job.yml

# 6. The report: a page for each run, to open in a browser.
ls runs/orders/*.html

# 7. Every night: add this line by `crontab -e`.
echo "15 3 * * * cd $PWD && $(command -v singer-spark) run job.yml"
