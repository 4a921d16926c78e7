# syntax=docker/dockerfile:1
# tallystream-spark: `tallystream aggregate` and what it needs: PySpark, a Java runtime. Without the page.
# Build it from the root of the repository: docker build -f compose/images/spark.Dockerfile -t tallystream-spark:0.1.0 .

ARG PYTHON_IMAGE=python:3.12-slim-bookworm
ARG JAVA_IMAGE=eclipse-temurin:17.0.15_6-jdk-jammy

FROM ${JAVA_IMAGE} AS java
# A runtime of the modules that Spark uses (jdeps lists them), and Java's own archive of classes.
RUN /opt/java/openjdk/bin/jlink --output /opt/java/runtime --no-header-files --no-man-pages --add-modules \
        java.base,java.compiler,java.desktop,java.instrument,java.logging,java.management,java.naming,java.rmi,java.scripting,java.security.jgss,java.security.sasl,java.sql,java.transaction.xa,java.xml,jdk.crypto.ec,jdk.incubator.vector,jdk.management,jdk.security.auth,jdk.unsupported,jdk.zipfs \
    && /opt/java/runtime/bin/java -Xshare:dump

FROM ${PYTHON_IMAGE} AS build
COPY --from=java /opt/java/runtime /opt/java/openjdk
ENV JAVA_HOME=/opt/java/openjdk \
    PIP_DISABLE_PIP_VERSION_CHECK=1 \
    PIP_NO_CACHE_DIR=1
WORKDIR /src
COPY compose/images/build.lock compose/images/spark.lock ./compose/images/
# The build tools come first, so that nothing is built with a package that has no hash.
RUN python -m venv /opt/tallystream \
    && /opt/tallystream/bin/pip install --require-hashes --only-binary :all: -r compose/images/build.lock \
    && /opt/tallystream/bin/pip install --require-hashes --no-build-isolation -r compose/images/spark.lock
COPY reporter ./reporter
COPY aggregator ./aggregator
COPY dashboards ./dashboards
COPY compose ./compose
RUN /opt/tallystream/bin/pip install --no-deps --no-build-isolation --no-index \
        ./reporter ./aggregator ./dashboards ./compose \
    && /opt/tallystream/bin/pip uninstall --yes hatchling pathspec pluggy setuptools tomlkit trove-classifiers pip \
    && find /opt/tallystream/lib -type d -name tests -prune -exec rm -r {} + \
    && rm -r /opt/tallystream/lib/python3*/site-packages/pyarrow/include
# Jars that no job needs: of Hive, of machine learning, of Spark Connect, DStreams and the shell, of YARN, and for other
# systems. These stay: Spark Core, Spark SQL with streaming and its state store, and the scheduler for Kubernetes.
WORKDIR /opt/tallystream/lib/python3.12/site-packages/pyspark/jars
RUN rm -r ../examples ../data connect-repl && rm -f hive-[!s]* hive-serde* hive-service* hive-shims* spark-hive* datanucleus-* \
        derby* ./*jdo-* HikariCP-* libfb303-* libthrift-* commons-dbcp-* commons-lang-2* commons-pool-1* javolution-* \
        joda-time-* jpam-* json-1* jta-* opencsv-* oro-* ST4-* antlr-runtime-* stax-api-* super-csv-* transaction-api-* \
        spark-mllib* spark-graphx* breeze* spire* cats-kernel* algebra* JTransforms-* JLargeArrays-* lapack-* arpack* \
        blas-* spark-connect* spark-pipelines* spark-streaming_* spark-repl* scala-compiler-* jline-* \
        spark-yarn* curator-* zookeeper-* netty-*-osx-* netty-*-windows-* netty-*-riscv64.jar
WORKDIR /src
# An archive of classes, which halves the time of Spark's start. To make it, a query with a state store runs.
# A builder's host name may have no address, which Spark would ask for.
RUN SPARK_LOCAL_IP=127.0.0.1 /opt/tallystream/bin/python -m tallystream_aggregator.spark.cds_archive

FROM ${PYTHON_IMAGE}
COPY --from=java /opt/java/runtime /opt/java/openjdk
COPY --from=build /opt/tallystream /opt/tallystream
# The user has a name because Hadoop, which is part of Spark, asks for one.
RUN useradd --uid 10001 --no-create-home --home-dir /tmp --shell /usr/sbin/nologin tallystream \
    && install -d -o tallystream -g tallystream /var/lib/tallystream
ENV HOME=/tmp \
    JAVA_HOME=/opt/java/openjdk \
    PATH=/opt/tallystream/bin:/opt/java/openjdk/bin:/usr/local/bin:/usr/bin:/bin \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1
USER 10001:10001
WORKDIR /var/lib/tallystream
VOLUME /var/lib/tallystream
EXPOSE 9400
STOPSIGNAL SIGTERM
# It asks whether the process works, not whether it is ready: a standby must not be restarted.
HEALTHCHECK --interval=10s --timeout=6s --start-period=120s --retries=3 \
    CMD ["python", "-c", "import sys, urllib.request; urllib.request.urlopen(sys.argv[1], timeout=5)", "http://127.0.0.1:9400/healthz"]
ENTRYPOINT ["tallystream"]
CMD ["--help"]
