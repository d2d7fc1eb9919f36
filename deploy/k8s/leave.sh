#!/bin/sh
# Runs in a worker before its pod is stopped: sends SIGTERM to its ranks, which save, and waits until they have ended.
# sshd is the first process of the pod; when it goes, all others are killed.
for process in /proc/[0-9]*; do
  case "$(readlink "$process/exe")" in */python*) kill -TERM "${process#/proc/}" ;; esac
done
while readlink /proc/[0-9]*/exe | grep -q hydra_pmi_proxy; do sleep 1; done
