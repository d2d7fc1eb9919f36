#!/bin/sh
# What a worker does before its pod is stopped: tells its ranks to save, and waits until they have left.
# sshd is the first process of the pod; when it goes, all others are killed.
for process in /proc/[0-9]*; do
  case "$(readlink "$process/exe")" in */python*) kill -TERM "${process#/proc/}" ;; esac
done
while readlink /proc/[0-9]*/exe | grep -q hydra_pmi_proxy; do sleep 1; done
