{{/* The sidecar as `sidecall injector --template` reads it. */}}

{{- define "sidecall.injected" -}}
native: {{ .Values.sidecar.native }}
container:
  {{- include "sidecall.container" (dict "root" . "form" (ternary "native" "plain" .Values.sidecar.native)) | nindent 2 }}
{{- if .Values.sidecar.enforce.enabled }}
first:
  - {{- include "sidecall.enforce" . | nindent 4 }}
{{- end }}
volumes:
  {{- include "sidecall.volumes" . | nindent 2 }}
env:
  {{- include "sidecall.sidecar.env" . | nindent 2 }}
labels:
  {{- include "sidecall.sidecar.labels" . | nindent 2 }}
{{- with include "sidecall.scrapeAnnotations" . | trim }}
annotations:
  {{- . | nindent 2 }}
{{- end }}
config: |
  {{- include "sidecall.config" . | nindent 2 }}
{{- end -}}
