# docker build -f deploy/k8s/ssh.Dockerfile --build-arg IMAGE=tenon -t tenon-mpijob .      (from the root of the repository)
# An image of deploy/docker with what an MPIJob needs besides: ssh between the pods, and a user who is not root.
ARG IMAGE=tenon
FROM ${IMAGE}

# The host keys that come with the package would be the same in every pod of everybody.
RUN apt-get update \
    && apt-get install -y --no-install-recommends openssh-client openssh-server \
    && rm -rf /var/lib/apt/lists/* /etc/ssh/ssh_host_* \
    && useradd --create-home --uid 1000 tenon \
    && install -d -o tenon -g tenon /runs

COPY deploy/k8s/ssh_config /etc/ssh/ssh_config.d/tenon.conf
COPY deploy/k8s/sshd_config /etc/tenon/sshd_config
COPY deploy/k8s/leave.sh /usr/local/bin/leave.sh

USER tenon
