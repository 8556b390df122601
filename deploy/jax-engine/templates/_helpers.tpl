{{- define "jax-engine.name" -}}
{{- if contains .Chart.Name .Release.Name -}}
{{- .Release.Name | trunc 63 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 63 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- /* A LeaderWorkerSet makes a headless Service of its own name. */ -}}
{{- define "jax-engine.service" -}}
{{ include "jax-engine.name" . }}{{ eq .Values.kind "LeaderWorkerSet" | ternary "-leader" "" }}
{{- end -}}

{{- define "jax-engine.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "jax-engine.labels" -}}
{{ include "jax-engine.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- with .Values.labels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- /* The name of the claim of the cache; empty: each pod has a cache of its own. */ -}}
{{- define "jax-engine.claim" -}}
{{- if .Values.cache.existingClaim -}}
{{ .Values.cache.existingClaim }}
{{- else if .Values.cache.pvcStorage -}}
{{ include "jax-engine.name" . }}-cache
{{- end -}}
{{- end -}}

{{- /* The port of KV events that a pod opens; empty: it connects to a router. */ -}}
{{- define "jax-engine.eventsPort" -}}
{{- if and .Values.kvEvents.enabled (contains "*" .Values.kvEvents.endpoint) -}}
{{ regexFind "[0-9]+$" .Values.kvEvents.endpoint }}
{{- end -}}
{{- end -}}
