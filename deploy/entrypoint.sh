#!/bin/bash
# What Spark starts in its pods: `driver …` with the arguments of spark-submit, or `executor` with its address in the environment.
set -euo pipefail

# Java wants a name for the user; the pod may run as one that the image does not know.
if ! getent passwd "$(id -u)" > /dev/null && [ -w /etc/passwd ]; then
  echo "spark:x:$(id -u):0:spark:${SPARK_HOME}:/bin/false" >> /etc/passwd
fi

case "${1:-}" in
  driver)
    shift
    set -- "${SPARK_HOME}/bin/spark-submit" \
      --conf "spark.driver.bindAddress=${SPARK_DRIVER_BIND_ADDRESS}" \
      --conf "spark.executorEnv.SPARK_DRIVER_POD_IP=${SPARK_DRIVER_BIND_ADDRESS}" \
      --deploy-mode client "$@"
    ;;
  executor)
    options=()
    while IFS='=' read -r -d '' name value; do
      if [[ "${name}" =~ ^SPARK_JAVA_OPT_[0-9]+$ ]]; then options+=("${value}"); fi
    done < <(env --null | sort --zero-terminated --version-sort)
    set -- "${JAVA_HOME}/bin/java" "${options[@]}" \
      "-Xms${SPARK_EXECUTOR_MEMORY}" "-Xmx${SPARK_EXECUTOR_MEMORY}" \
      -cp "${SPARK_CLASSPATH:-}:${SPARK_HOME}/jars/*:/opt/jars/*:${SPARK_CONF_DIR:-${SPARK_HOME}/conf}" \
      org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend \
      --driver-url "${SPARK_DRIVER_URL}" \
      --executor-id "${SPARK_EXECUTOR_ID}" \
      --cores "${SPARK_EXECUTOR_CORES}" \
      --app-id "${SPARK_APPLICATION_ID}" \
      --hostname "${SPARK_EXECUTOR_POD_IP}" \
      --resourceProfileId "${SPARK_RESOURCE_PROFILE_ID}" \
      --podName "${SPARK_EXECUTOR_POD_NAME}"
    ;;
esac

exec /usr/bin/tini -s -- "$@"
