# syntax=docker/dockerfile:1

FROM golang:1.26-bookworm AS build
WORKDIR /src
# Modules first: they change less often than the code.
COPY go.mod go.sum ./
RUN --mount=type=cache,target=/go/pkg/mod go mod download
COPY . .
ARG VERSION=dev
RUN --mount=type=cache,target=/go/pkg/mod --mount=type=cache,target=/root/.cache/go-build \
    mkdir /out && CGO_ENABLED=0 go build -trimpath \
    -ldflags "-s -w -X github.com/onefold-dev/onefold/internal/boot.Version=${VERSION}" \
    -o /out/ ./cmd/api ./cmd/worker ./cmd/onefold

# Nothing but the three programs and the authorities that providers' certificates
# are checked against.
FROM scratch
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/
COPY --from=build /out/ /bin/
# A number, so that Kubernetes' runAsNonRoot can tell that it is not root.
USER 65532:65532
EXPOSE 8080
CMD ["/bin/onefold", "--help"]
