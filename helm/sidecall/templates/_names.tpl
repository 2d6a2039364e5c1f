{{/* Names and labels. All take a chart's own context. */}}

{{- define "sidecall.name" -}}
{{- default "sidecall" .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "sidecall.fullname" -}}
{{- $name := include "sidecall.name" . -}}
{{- $full := ternary .Release.Name (printf "%s-%s" .Release.Name $name) (contains $name .Release.Name) -}}
{{- default $full .Values.fullnameOverride | trunc 52 | trimSuffix "-" -}}
{{- end -}}

{{- define "sidecall.selector" -}}
app.kubernetes.io/name: {{ include "sidecall.name" . }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end -}}

{{- define "sidecall.labels" -}}
{{ include "sidecall.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/component: {{ .Values.mode }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name (.Chart.Version | replace "+" "_") }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "sidecall.serviceAccountName" -}}
{{- $own := .Values.gateway.serviceAccount -}}
{{- $own.name | default (ternary (include "sidecall.fullname" .) "default" $own.create) -}}
{{- end -}}

{{- define "sidecall.image" -}}
{{- $image := .Values.image -}}
{{- $image.repository }}:{{ $image.tag | default .Chart.AppVersion }}{{ with $image.digest }}@{{ . }}{{ end -}}
{{- end -}}

{{/* Whether state lies in Redis; "true" or nothing. */}}
{{- define "sidecall.hasRedis" -}}
{{- if or .Values.state.redis.url .Values.state.redis.existingSecret -}}true{{- end -}}
{{- end -}}

{{/* Whether there can be more than one pod of the gateway; "true" or nothing. */}}
{{- define "sidecall.hasMany" -}}
{{- $own := .Values.gateway -}}
{{- if gt (int (ternary $own.autoscaling.maxReplicas $own.replicas $own.autoscaling.enabled)) 1 -}}true{{- end -}}
{{- end -}}
