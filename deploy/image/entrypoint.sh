#!/bin/bash
# Begins the container. `executor` comes from Spark on Kubernetes, which gives everything else in the environment; all else is for `validator`.
set -euo pipefail

if [ "${1:-}" != executor ]; then
  exec validator "$@"
fi

# executors keep in their folder what the driver ships to them: it has to be one that they may write
cd "${SPARK_LOCAL_DIRS%%,*}"
options=()
while IFS= read -r name; do
  options+=("${!name}")
done < <(compgen -A variable SPARK_JAVA_OPT_ | sort -t_ -k4 -n)
exec java "${options[@]}" "-Xms${SPARK_EXECUTOR_MEMORY}" "-Xmx${SPARK_EXECUTOR_MEMORY}" \
  -cp "${SPARK_CONF_DIR:-.}:${SPARK_CLASSPATH:+${SPARK_CLASSPATH}:}${SPARK_HOME}/jars/*" \
  org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend \
  --driver-url "${SPARK_DRIVER_URL}" \
  --executor-id "${SPARK_EXECUTOR_ID}" \
  --cores "${SPARK_EXECUTOR_CORES}" \
  --app-id "${SPARK_APPLICATION_ID}" \
  --hostname "${SPARK_EXECUTOR_POD_IP}" \
  --resourceProfileId "${SPARK_RESOURCE_PROFILE_ID}" \
  --podName "${SPARK_EXECUTOR_POD_NAME}"
