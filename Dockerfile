# syntax=docker/dockerfile:1
# The image of make image, for who has a container engine rather than Go:
#
#   docker build --tag REGISTRY/flex2csi:VERSION .
#   docker buildx build --platform linux/amd64,linux/arm64 --tag REGISTRY/flex2csi:VERSION --push .
#
# .git goes along, so that the programs know their version.
FROM --platform=$BUILDPLATFORM golang:1.26 AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
ARG TARGETOS TARGETARCH
RUN CGO_ENABLED=0 GOOS=$TARGETOS GOARCH=$TARGETARCH go build -trimpath -ldflags '-s -w' -o /out/ ./cmd/...

FROM scratch
COPY --from=build /out/flex2csi /out/flexdriver /
USER 65532:65532
ENTRYPOINT ["/flex2csi"]
