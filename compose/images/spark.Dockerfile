# syntax=docker/dockerfile:1
# tallystream-spark: `tallystream aggregate` and `tallystream ship`, and what they need: PySpark, a Java runtime, the jars.
# Build it from the root of the repository: docker build -f compose/images/spark.Dockerfile -t tallystream-spark:0.1.0 .

ARG PYTHON_IMAGE=python:3.12-slim-bookworm
ARG JAVA_IMAGE=eclipse-temurin:17.0.15_6-jre-jammy

FROM ${JAVA_IMAGE} AS java

FROM ${PYTHON_IMAGE} AS build
COPY --from=java /opt/java/openjdk /opt/java/openjdk
ENV JAVA_HOME=/opt/java/openjdk \
    PIP_DISABLE_PIP_VERSION_CHECK=1 \
    PIP_NO_CACHE_DIR=1 \
    TALLYSTREAM_CACHE=/opt/tallystream/cache
WORKDIR /src
COPY compose/images/build.lock compose/images/spark.lock ./compose/images/
# What builds the rest first; nothing is built with what the lock does not name.
RUN python -m venv /opt/tallystream \
    && /opt/tallystream/bin/pip install --require-hashes --only-binary :all: -r compose/images/build.lock \
    && /opt/tallystream/bin/pip install --require-hashes --no-build-isolation -r compose/images/spark.lock
COPY reporter ./reporter
COPY aggregator ./aggregator
COPY dashboards ./dashboards
COPY compose ./compose
RUN /opt/tallystream/bin/pip install --no-deps --no-build-isolation --no-index \
        ./reporter ./aggregator ./dashboards ./compose \
    && /opt/tallystream/bin/python -m tallystream_aggregator.jars spark files \
    && /opt/tallystream/bin/pip uninstall --yes hatchling pip
# Halves the start of Spark. A Java that can't write an archive of classes says so, and the image is right without one.
RUN /opt/tallystream/bin/python -m tallystream_aggregator.spark.cds_archive || true

FROM ${PYTHON_IMAGE}
COPY --from=java /opt/java/openjdk /opt/java/openjdk
COPY --from=build /opt/tallystream /opt/tallystream
# A user with a name: Hadoop, inside Spark, asks for it.
RUN useradd --uid 10001 --no-create-home --home-dir /tmp --shell /usr/sbin/nologin tallystream \
    && install -d -o tallystream -g tallystream /var/lib/tallystream
ENV HOME=/tmp \
    JAVA_HOME=/opt/java/openjdk \
    PATH=/opt/tallystream/bin:/opt/java/openjdk/bin:/usr/local/bin:/usr/bin:/bin \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    TALLYSTREAM_CACHE=/opt/tallystream/cache
USER 10001:10001
WORKDIR /var/lib/tallystream
VOLUME /var/lib/tallystream
EXPOSE 9400
STOPSIGNAL SIGTERM
# Alive, not ready: an aggregator that stands by, or a shipper whose store is away, is not to be started again.
HEALTHCHECK --interval=10s --timeout=6s --start-period=120s --retries=3 \
    CMD ["python", "-c", "from urllib.request import urlopen; urlopen('http://127.0.0.1:9400/healthz', timeout=5)"]
ENTRYPOINT ["tallystream"]
CMD ["--help"]
