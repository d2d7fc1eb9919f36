# docker build -f deploy/docker/cpu.Dockerfile -t tenon .      (from the root of the repository)
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
RUN pip install --no-cache-dir ".[mpich,fast]"

WORKDIR /runs
CMD ["tenon", "doctor"]
