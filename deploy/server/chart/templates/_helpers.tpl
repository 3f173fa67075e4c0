{{- define "headrace.name" -}}
{{- printf "%s" .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- end -}}

{{- define "headrace.peers" -}}
{{- printf "%s-peers" (include "headrace.name" .) -}}
{{- end -}}

{{- define "headrace.selector" -}}
app.kubernetes.io/name: headrace
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "headrace.labels" -}}
{{ include "headrace.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{- define "headrace.shared" -}}
{{- if .Values.registry.existingSecret -}}
{{- .Values.shared.existingClaim | default (printf "%s-shared" (include "headrace.name" .)) -}}
{{- end -}}
{{- end -}}

{{- define "headrace.check" -}}
{{- if and (gt (int .Values.replicas) 1) (not .Values.registry.existingSecret) -}}
{{- fail "replicas: more than one server need registry.existingSecret: a MySQL or PostgreSQL that all of them reach" -}}
{{- end -}}
{{- if not .Values.tls.existingSecret -}}
{{- fail "tls.existingSecret: others reach a server only by TLS: name a secret of type kubernetes.io/tls" -}}
{{- end -}}
{{- $places := 0 -}}
{{- range (list .Values.jobs.files .Values.jobs.existingConfigMap .Values.jobs.existingClaim) -}}
{{- if . -}}{{- $places = add $places 1 -}}{{- end -}}
{{- end -}}
{{- if ne (int $places) 1 -}}
{{- fail "jobs: give one of files, existingConfigMap and existingClaim" -}}
{{- end -}}
{{- end -}}
