# docker build -f deploy/docker/cuda.Dockerfile -t tenon-cuda .      (from the root of the repository)
# CUDA's libraries come with CuPy's wheels. The host needs a driver for CUDA 12 and NVIDIA's container toolkit.
FROM python:3.11-slim

# oneDNN runs on GNU OpenMP, which the slim image lacks.
RUN apt-get update \
    && apt-get install -y --no-install-recommends libgomp1 \
    && rm -rf /var/lib/apt/lists/*

WORKDIR /opt/tenon
COPY pyproject.toml README.md LICENSE ./
COPY platform platform
COPY plugins plugins
COPY backends backends
RUN pip install --no-cache-dir ".[mpich,fast,cuda12]"

ENV NVIDIA_VISIBLE_DEVICES=all
ENV NVIDIA_DRIVER_CAPABILITIES=compute,utility

WORKDIR /runs
CMD ["tenon", "doctor"]
