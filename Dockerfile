# The image of Causeway. It compiles nothing and runs nothing while it is built: the program was compiled for its processor before, so that an
# x86 laptop builds an ARM64 image without emulating one. scripts/build-image does both, and finds out the digest of the base image.
#
#   docker build --platform linux/arm64 --build-arg BASE_IMAGE=gcr.io/distroless/cc-debian12@sha256:… --build-arg PROGRAM=dist/image/arm64/causeway .
#
# BASE_IMAGE has no default on purpose: it is named by digest, or the image could change without anybody changing it. Distroless "cc" holds the C
# library that the program is linked to, certificates of public authorities, and no shell.
ARG BASE_IMAGE
FROM ${BASE_IMAGE}

# Relative to the build's context: this file's folder, or dist/image/ARCHITECTURE, where it is just `causeway`.
ARG PROGRAM=causeway
COPY --chmod=0555 ${PROGRAM} /usr/local/bin/causeway

# A number, so that an orchestrator can tell that it is not root. Nothing on disk is written to.
USER 65532:65532
EXPOSE 8080 8081 8082
STOPSIGNAL SIGTERM
ENTRYPOINT ["/usr/local/bin/causeway"]
CMD ["run", "--role", "worker"]
