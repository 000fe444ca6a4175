ARG IMAGE
FROM $IMAGE

COPY packages /opt/torchx-pulumi
# Compiled here: nothing can be written in the container. The last command fails if a package is not for this Python.
RUN python3 -m compileall -q -j 0 /opt/torchx-pulumi \
 && mkdir -p /usr/local/bin \
 && printf '#!/bin/sh\nPYTHONPATH=/opt/torchx-pulumi exec python3 -m torchx_pulumi_stacks.console "$@"\n' > /usr/local/bin/torchx-pulumi \
 && chmod 755 /usr/local/bin/torchx-pulumi \
 && cd /opt/torchx-pulumi && python3 -c 'import psutil, starlette, uvicorn, yaml' \
 && /usr/local/bin/torchx-pulumi controller --help > /dev/null

USER 65532:65532
ENTRYPOINT ["/usr/local/bin/torchx-pulumi"]
