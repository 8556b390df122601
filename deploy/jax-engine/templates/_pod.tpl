{{- define "jax-engine.podTemplate" -}}
{{- $pods := .Values.autoscaling.enabled | ternary .Values.autoscaling.maxReplicas .Values.replicaCount | int -}}
{{- if and (gt $pods 1) .Values.cache.pvcStorage (not .Values.cache.existingClaim) (hasPrefix "ReadWriteOnce" .Values.cache.accessMode) -}}
{{- fail (printf "cache.accessMode must be ReadWriteMany for %d pods, got %s; or leave cache.pvcStorage empty, and each pod has a cache of its own" $pods .Values.cache.accessMode) -}}
{{- end -}}
metadata:
  labels:
    {{- include "jax-engine.labels" . | nindent 4 }}
    {{- with .Values.podLabels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- with .Values.podAnnotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  {{- with .Values.imagePullSecrets }}
  imagePullSecrets:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  automountServiceAccountToken: false
  # Else a Service named vllm or jax-engine would set variables that begin like settings.
  enableServiceLinks: false
  # The wait before the signal, the server's own time to drain, and some to spare.
  terminationGracePeriodSeconds: {{ add .Values.preStopSeconds .Values.shutdownTimeout 10 }}
  securityContext:
    runAsNonRoot: true
    runAsUser: 10001
    runAsGroup: 0
    fsGroup: 10001
    fsGroupChangePolicy: OnRootMismatch
    seccompProfile:
      type: RuntimeDefault
  containers:
    - name: jax-engine
      image: "{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}"
      imagePullPolicy: {{ .Values.image.pullPolicy }}
      args:
        {{- include "jax-engine.arguments" . | nindent 8 }}
      env:
        {{- include "jax-engine.environment" . | nindent 8 }}
      ports:
        - name: http
          containerPort: {{ .Values.containerPort }}
        {{- with include "jax-engine.eventsPort" . }}
        - name: kv-events
          containerPort: {{ . }}
        {{- end }}
      startupProbe:
        httpGet:
          path: /health
          port: http
        {{- toYaml .Values.startupProbe | nindent 8 }}
      readinessProbe:
        httpGet:
          path: /health
          port: http
        {{- toYaml .Values.readinessProbe | nindent 8 }}
      livenessProbe:
        httpGet:
          path: /health
          port: http
        {{- toYaml .Values.livenessProbe | nindent 8 }}
      {{- if .Values.preStopSeconds }}
      lifecycle:
        preStop:
          sleep:
            seconds: {{ .Values.preStopSeconds }}
      {{- end }}
      resources:
        {{- toYaml .Values.resources | nindent 8 }}
      securityContext:
        allowPrivilegeEscalation: false
        readOnlyRootFilesystem: true
        capabilities:
          drop:
            - ALL
      volumeMounts:
        - name: cache
          mountPath: /cache
        - name: tmp
          mountPath: /tmp
        {{- if .Values.shm.enabled }}
        - name: shm
          mountPath: /dev/shm
        {{- end }}
        {{- with .Values.extraVolumeMounts }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
  volumes:
    - name: cache
      {{- with include "jax-engine.claim" . }}
      persistentVolumeClaim:
        claimName: {{ . }}
      {{- else }}
      emptyDir: {}
      {{- end }}
    - name: tmp
      emptyDir: {}
    {{- if .Values.shm.enabled }}
    - name: shm
      emptyDir:
        medium: Memory
        sizeLimit: {{ .Values.shm.size }}
    {{- end }}
    {{- with .Values.extraVolumes }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- with .Values.nodeSelector }}
  nodeSelector:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.tolerations }}
  tolerations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.affinity }}
  affinity:
    {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end -}}

{{- define "jax-engine.arguments" -}}
{{- with .Values.model -}}
- {{ . | quote }}
{{ end -}}
- --port={{ .Values.containerPort }}
- --shutdown-timeout={{ .Values.shutdownTimeout }}
{{- with .Values.servedModelName }}
- --served-model-name={{ . }}
{{- end }}
{{- if .Values.kvEvents.enabled }}
{{- $name := .Values.servedModelName | default .Values.model | default "SmolLM2-135M-Instruct" }}
{{- $topic := printf "kv@$(POD_IP):%v@%s" .Values.containerPort $name }}
{{- $events := dict "enable_kv_cache_events" true "endpoint" .Values.kvEvents.endpoint "topic" $topic }}
- --kv-events-config={{ $events | toJson }}
{{- end }}
{{- with .Values.args }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "jax-engine.environment" -}}
# XLA starts a thread for each core of the node unless it is told the container's limit.
- name: NPROC
  valueFrom:
    resourceFieldRef:
      resource: limits.cpu
{{- if .Values.kvEvents.enabled }}
- name: POD_IP
  valueFrom:
    fieldRef:
      fieldPath: status.podIP
- name: PYTHONHASHSEED
  value: {{ .Values.kvEvents.hashSeed | quote }}
{{- end }}
{{- with .Values.hfTokenSecret.name }}
- name: HF_TOKEN
  valueFrom:
    secretKeyRef:
      name: {{ . }}
      key: {{ $.Values.hfTokenSecret.key }}
{{- end }}
{{- with .Values.apiKeySecret.name }}
- name: VLLM_API_KEY
  valueFrom:
    secretKeyRef:
      name: {{ . }}
      key: {{ $.Values.apiKeySecret.key }}
{{- end }}
{{- with .Values.env }}
{{ toYaml . }}
{{- end }}
{{- end -}}
