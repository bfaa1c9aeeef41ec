# The gateway of deploy/Dockerfile with every agent of the catalogue, installed: sessions choose one by name.
#
#   docker build -f deploy/Dockerfile -t holdfast .
#   docker build -f deploy/agents.Dockerfile -t holdfast-agents deploy
#
# The versions are those that this gateway was tried with; npm compares each package with the hashes that the gateway's wheel
# has, and runs none of its scripts. Each agent is a layer of its own: an upgrade of one fetches that one.
ARG GATEWAY_IMAGE=holdfast
# What the build runs in, if that needs something that the image shall not have, such as a certificate authority.
ARG BUILD_IMAGE=${GATEWAY_IMAGE}

FROM ${BUILD_IMAGE} AS build
USER root
ENV HOLDFAST_AGENTS_DIR=/agents
RUN holdfast agents install pi@0.87.1
RUN holdfast agents install claude-code@2.1.326
RUN holdfast agents install codex@0.169.0
RUN holdfast agents install opencode@1.18.33
RUN holdfast agents install gemini@0.61.0

FROM ${GATEWAY_IMAGE}
COPY --from=build /agents/node /agents/node
COPY --from=build /agents/claude-code /agents/claude-code
COPY --from=build /agents/codex /agents/codex
COPY --from=build /agents/pi /agents/pi
COPY --from=build /agents/opencode /agents/opencode
COPY --from=build /agents/gemini /agents/gemini
COPY --from=build /agents/bin /agents/bin
ENV HOLDFAST_AGENTS_DIR=/agents
