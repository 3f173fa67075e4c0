#!/bin/bash
# Starts a job on Kubernetes without an operator. The driver runs in a pod (cluster mode).
#
#   API_SERVER=https://203.0.113.1:6443 IMAGE=registry.example.com/headrace-job deploy/spark-submit-k8s.sh local:///opt/job/job.py
set -euo pipefail

: "${API_SERVER:?the address of the API server: kubectl cluster-info}"
: "${IMAGE:?the image, made from deploy/Dockerfile}"

exec spark-submit \
  --master "k8s://${API_SERVER}" \
  --deploy-mode cluster \
  --name "${NAME:-headrace-job}" \
  --conf "spark.kubernetes.namespace=${NAMESPACE:-headrace}" \
  --conf "spark.kubernetes.container.image=${IMAGE}" \
  --conf spark.kubernetes.authenticate.driver.serviceAccountName=headrace-driver \
  --conf spark.kubernetes.driver.secretKeyRef.AWS_ACCESS_KEY_ID=headrace-s3:AWS_ACCESS_KEY_ID \
  --conf spark.kubernetes.driver.secretKeyRef.AWS_SECRET_ACCESS_KEY=headrace-s3:AWS_SECRET_ACCESS_KEY \
  --conf spark.kubernetes.executor.secretKeyRef.AWS_ACCESS_KEY_ID=headrace-s3:AWS_ACCESS_KEY_ID \
  --conf spark.kubernetes.executor.secretKeyRef.AWS_SECRET_ACCESS_KEY=headrace-s3:AWS_SECRET_ACCESS_KEY \
  --conf "spark.executor.instances=${EXECUTORS:-2}" \
  --conf spark.executor.memory=2g \
  --conf spark.executor.memoryOverhead=2g \
  "$@"
