# Two stages: the first has what installing needs, the second only what running needs.
# A release is built with the base's digest: --build-arg BASE=docker.io/library/python@sha256:…
ARG BASE=docker.io/library/python:3.11.14-slim-bookworm

FROM ${BASE} AS build
WORKDIR /src
COPY requirements-image.lock requirements-build.lock ./
RUN python3 -m venv /build \
    && /build/bin/pip install --no-cache-dir --require-hashes --only-binary :all: -r requirements-build.lock \
    && python3 -m venv --without-pip /opt/sidecall \
    && /build/bin/pip --python /opt/sidecall/bin/python install --no-cache-dir --require-hashes \
        --only-binary :all: -r requirements-image.lock
COPY pyproject.toml README.md LICENSE ./
COPY proxy proxy
RUN /build/bin/pip wheel --no-cache-dir --no-deps --no-build-isolation --wheel-dir /wheels . \
    && /build/bin/pip --python /opt/sidecall/bin/python install --no-cache-dir --no-deps --no-index /wheels/*.whl \
    && mkdir -p /state/sidecall

FROM ${BASE}
ARG VERSION=0.1.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="Sidecall" \
    org.opencontainers.image.description="A sidecar proxy that governs the tool calls of AI agents" \
    org.opencontainers.image.licenses="Apache-2.0" \
    org.opencontainers.image.version="${VERSION}" \
    org.opencontainers.image.revision="${REVISION}"
COPY --from=build /opt/sidecall /opt/sidecall
COPY --from=build --chown=10001:10001 --chmod=0700 /state/sidecall /var/lib/sidecall
ENV PATH=/opt/sidecall/bin:$PATH PYTHONDONTWRITEBYTECODE=1 XDG_STATE_HOME=/var/lib
USER 10001:10001
EXPOSE 15480 15490
ENTRYPOINT ["sidecall"]
CMD ["serve"]
