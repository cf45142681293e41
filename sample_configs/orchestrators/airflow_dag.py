from datetime import datetime, timedelta

from airflow.providers.standard.operators.bash import BashOperator
from airflow.sdk import DAG

with DAG(
    "orders",
    schedule="*/15 * * * *",
    start_date=datetime(2026, 1, 1),
    catchup=False,
    max_active_runs=1,
):
    BashOperator(
        task_id="load",
        bash_command="/srv/orders/run.sh ",
        skip_on_exit_code=99,
        append_env=True,
        retries=2,
        retry_delay=timedelta(minutes=1),
    )
