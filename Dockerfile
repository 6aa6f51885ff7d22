# The product in an image: the job, its commands, the console, and Spark's executors on Kubernetes (docs/cluster.md).
#   docker build --tag validator .
# Python's packages are lines of requirements.txt, each with the hashes of its archives; Java is Debian's. Nothing secret
# belongs into an image: configuration and passwords come as files or environment variables.
FROM python:3.11-slim-bookworm AS base
# Debian removes a version from its archive once there is a newer one with fixes, so these have none.
# hadolint ignore=DL3008
RUN apt-get update \
 && apt-get install --yes --no-install-recommends openjdk-17-jre-headless tini \
 && rm -rf /var/lib/apt/lists/*
ENV PATH=/opt/validator/bin:$PATH \
    SPARK_HOME=/opt/validator/lib/python3.11/site-packages/pyspark \
    XDG_CACHE_HOME=/opt/validator/cache \
    PYTHONUNBUFFERED=1

FROM base AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
RUN python -m venv /opt/validator
COPY requirements.txt /requirements/
# pyspark has no wheel, hence the build backends first
RUN grep -E '# (.* )?build( |$)' /requirements/requirements.txt > /requirements/build.txt \
 && grep -E '# (.* )?(run|spark|console)( |$)' /requirements/requirements.txt > /requirements/run.txt \
 && pip install --no-deps --only-binary :all: --require-hashes --requirement /requirements/build.txt \
 && pip install --no-deps --no-build-isolation --require-hashes --requirement /requirements/run.txt
WORKDIR /source
COPY LICENSE README.md CHANGELOG.md pyproject.toml ./
COPY avro avro
COPY examples/first-channel examples/first-channel
COPY plugins plugins
COPY streaming streaming
COPY validator validator
RUN pip install --no-deps --no-build-isolation --no-index . ./plugins/*/ \
# the archive of classes holds for jars of these times, and layers keep whole seconds
 && find /opt/validator -name '*.jar' -exec touch --date=@1577836800 {} + \
 && validator jars \
# workers would import pyspark from archives there, and compile it each time
 && rm -r "${SPARK_HOME}/python/lib" \
 && chmod -R a+rX /opt/validator

FROM base
RUN groupadd --gid 10001 validator \
 && useradd --uid 10001 --gid 10001 --no-create-home --home-dir /var/lib/validator --shell /usr/sbin/nologin validator \
 && install --directory --owner=10001 --group=10001 --mode=0700 /var/lib/validator
COPY --from=build /opt/validator /opt/validator
COPY --chmod=0755 deploy/image/entrypoint.sh /usr/local/bin/validator-entrypoint
USER 10001:10001
# the only folders that are written: this one, for checkpoint, state and logs, and /tmp
WORKDIR /var/lib/validator
VOLUME ["/var/lib/validator"]
EXPOSE 9464
ENTRYPOINT ["tini", "--", "validator-entrypoint"]
CMD ["run", "--json", "--config", "/etc/validator/validator.toml"]
# it asks [metrics] listen; the first start of a job takes a minute on a busy machine
HEALTHCHECK --interval=30s --timeout=15s --start-period=120s --retries=3 \
  CMD ["validator", "health", "--config", "/etc/validator/validator.toml"]
