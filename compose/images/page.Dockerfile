# syntax=docker/dockerfile:1
# tallystream-page: `tallystream ship`, `page`, `lag` and `verify`. Without Java and without Spark.
# Build it from the root of the repository: docker build -f compose/images/page.Dockerfile -t tallystream-page:0.1.0 .

ARG PYTHON_IMAGE=python:3.12-slim-bookworm

FROM ${PYTHON_IMAGE} AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 \
    PIP_NO_CACHE_DIR=1
WORKDIR /src
# page.lock, or demo.lock for the demonstration's applications, which need its data set and the OpenTelemetry SDK, too.
ARG LOCK=page.lock
COPY compose/images/build.lock compose/images/${LOCK} ./compose/images/
RUN python -m venv /opt/tallystream \
    && /opt/tallystream/bin/pip install --require-hashes --only-binary :all: -r compose/images/build.lock \
    && /opt/tallystream/bin/pip install --require-hashes --no-build-isolation -r "compose/images/${LOCK}"
COPY reporter ./reporter
COPY aggregator ./aggregator
COPY dashboards ./dashboards
COPY compose ./compose
RUN /opt/tallystream/bin/pip install --no-deps --no-build-isolation --no-index \
        ./reporter ./aggregator ./dashboards ./compose \
    && /opt/tallystream/bin/pip uninstall --yes hatchling pathspec pluggy setuptools tomlkit trove-classifiers pip \
    && find /opt/tallystream/lib -type d -name tests -prune -exec rm -r {} + \
    && rm -r /opt/tallystream/lib/python3*/site-packages/pyarrow/include

FROM ${PYTHON_IMAGE}
COPY --from=build /opt/tallystream /opt/tallystream
RUN useradd --uid 10001 --no-create-home --home-dir /tmp --shell /usr/sbin/nologin tallystream \
    && install -d -o tallystream -g tallystream /var/lib/tallystream /var/lib/tallystream/tokens \
        /var/lib/tallystream/tokens/shipper /var/lib/tallystream/tokens/lag \
        /var/lib/tallystream/tokens/page /var/lib/tallystream/tokens/grafana
ENV HOME=/tmp \
    PATH=/opt/tallystream/bin:/usr/local/bin:/usr/bin:/bin \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1
USER 10001:10001
WORKDIR /var/lib/tallystream
EXPOSE 8501 9400
STOPSIGNAL SIGTERM
# Of the page; the lag collector has /healthz on its --http-port, which compose.yaml asks instead.
HEALTHCHECK --interval=10s --timeout=6s --start-period=30s --retries=3 \
    CMD ["python", "-c", "import sys, urllib.request; urllib.request.urlopen(sys.argv[1], timeout=5)", "http://127.0.0.1:8501/_stcore/health"]
ENTRYPOINT ["tallystream"]
CMD ["--help"]
