# docker build -f deploy/docker/cpu.Dockerfile -t tenon .      (from the root of the repository)
FROM python:3.11-slim

WORKDIR /opt/tenon
COPY pyproject.toml README.md LICENSE ./
COPY platform platform
COPY plugins plugins
COPY backends backends
RUN pip install --no-cache-dir ".[mpich,fast]"

WORKDIR /runs
CMD ["tenon", "doctor"]
