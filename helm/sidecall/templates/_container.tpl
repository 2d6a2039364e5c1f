{{/*
The proxy's container and its volumes, written once: for the gateway, for other charts' pods and for the injector.
Takes {root, form}: a chart's own context, and gateway, native (an init container that stays) or plain.
*/}}

{{- define "sidecall.container" -}}
{{- $values := .root.Values -}}
{{- $port := int $values.listen.adminPort -}}
name: sidecall
image: {{ include "sidecall.image" .root | quote }}
imagePullPolicy: {{ $values.image.pullPolicy }}
{{- if eq .form "native" }}
restartPolicy: Always
{{- end }}
args: [serve, --config, /etc/sidecall/config/sidecall.yaml]
{{- with $values.extraEnv }}
env:
  {{- toYaml . | nindent 2 }}
{{- end }}
ports:
  {{- if eq .form "gateway" }}
  - {name: sidecall, containerPort: {{ int $values.listen.port }}, protocol: TCP}
  {{- end }}
  - {name: sidecall-admin, containerPort: {{ $port }}, protocol: TCP}
startupProbe:
  httpGet: {path: /readyz, port: {{ $port }}}
  {{- toYaml $values.probes.startup | nindent 2 }}
readinessProbe:
  httpGet: {path: /readyz, port: {{ $port }}}
  {{- toYaml $values.probes.readiness | nindent 2 }}
livenessProbe:
  httpGet: {path: /livez, port: {{ $port }}}
  {{- toYaml $values.probes.liveness | nindent 2 }}
resources:
  {{- toYaml $values.resources | nindent 2 }}
securityContext:
  {{- toYaml $values.securityContext | nindent 2 }}
volumeMounts:
  {{- include "sidecall.volumeMounts" .root | nindent 2 }}
{{- end -}}

{{/* Folders, never single files of them (subPath), which would not follow changes. */}}
{{- define "sidecall.volumeMounts" -}}
- {name: sidecall-config, mountPath: /etc/sidecall/config, readOnly: true}
{{- if include "sidecall.config.secrets" . }}
- {name: sidecall-secrets, mountPath: /etc/sidecall/secrets, readOnly: true}
{{- end }}
{{- if .Values.policies }}
- {name: sidecall-policies, mountPath: /etc/sidecall/policies/own, readOnly: true}
{{- end }}
{{- range $index, $name := .Values.policyConfigMaps }}
- {name: sidecall-policies-{{ $index }}, mountPath: {{ printf "/etc/sidecall/policies/maps/%s" $name | quote }}, readOnly: true}
{{- end }}
- {name: sidecall-state, mountPath: /var/lib/sidecall}
{{- with .Values.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* Secrets keep the mode 0644 of their default: in a pod of others there is no group that the proxy's uid is of. */}}
{{- define "sidecall.volumes" -}}
- name: sidecall-config
  {{- if eq .Values.mode "injector" }}
  # An annotation of the pod, so that nothing has to be in its namespace before it.
  downwardAPI:
    items: [{path: sidecall.yaml, fieldRef: {fieldPath: "metadata.annotations['sidecall.io/config']"}}]
  {{- else }}
  configMap: {name: {{ include "sidecall.fullname" . }}}
  {{- end }}
{{- with include "sidecall.config.secrets" . }}
- name: sidecall-secrets
  projected:
    sources:
      {{- . | trim | nindent 6 }}
{{- end }}
{{- if .Values.policies }}
- name: sidecall-policies
  configMap: {name: {{ include "sidecall.fullname" . }}-policies}
{{- end }}
{{- range $index, $name := .Values.policyConfigMaps }}
- name: sidecall-policies-{{ $index }}
  configMap: {name: {{ $name | quote }}}
{{- end }}
- name: sidecall-state
  emptyDir: {sizeLimit: {{ .Values.state.sqlite.sizeLimit | quote }}}
{{- with .Values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "sidecall.scrapeAnnotations" -}}
{{- if .Values.metrics.annotations }}
prometheus.io/scrape: "true"
prometheus.io/port: {{ .Values.listen.adminPort | quote }}
prometheus.io/path: /metrics
{{- end }}
{{- end -}}
