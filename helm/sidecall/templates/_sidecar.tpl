{{/*
For other charts: the parts of a pod with a sidecar. The chart is a dependency of theirs with `mode: sidecar`, and each
template is called with the context of it:

    metadata:
      labels:
        {{- include "sidecall.sidecar.labels" .Subcharts.sidecall | nindent 8 }}
      annotations:
        {{- include "sidecall.sidecar.annotations" .Subcharts.sidecall | nindent 8 }}
    spec:
      initContainers:
        {{- include "sidecall.sidecar.initContainers" .Subcharts.sidecall | nindent 8 }}
      containers:
        - name: app
          env:
            {{- include "sidecall.sidecar.env" .Subcharts.sidecall | nindent 12 }}
        {{- include "sidecall.sidecar.containers" .Subcharts.sidecall | nindent 8 }}
      volumes:
        {{- include "sidecall.sidecar.volumes" .Subcharts.sidecall | nindent 8 }}
*/}}

{{- define "sidecall.sidecar.labels" -}}
sidecall.io/sidecar: "true"
{{- end -}}

{{/* A change of the configuration starts the pod anew; a change of policies does not need to. */}}
{{- define "sidecall.sidecar.annotations" -}}
checksum/sidecall-config: {{ include "sidecall.config" . | sha256sum }}
{{- include "sidecall.scrapeAnnotations" . }}
{{- end -}}

{{- define "sidecall.sidecar.initContainers" -}}
{{- if .Values.sidecar.enforce.enabled }}
- {{- include "sidecall.enforce" . | nindent 2 }}
{{- end }}
{{- if .Values.sidecar.native }}
- {{- include "sidecall.container" (dict "root" . "form" "native") | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "sidecall.sidecar.containers" -}}
{{- if not .Values.sidecar.native }}
- {{- include "sidecall.container" (dict "root" . "form" "plain") | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "sidecall.sidecar.volumes" -}}
{{ include "sidecall.volumes" . }}
{{- end -}}

{{/* Where the endpoint's key is the proxy's alone, the application gets one that is worth nothing. */}}
{{- define "sidecall.sidecar.env" -}}
- {name: OPENAI_BASE_URL, value: "http://127.0.0.1:{{ int .Values.listen.port }}/v1"}
{{- if .Values.upstream.existingSecret }}
- {name: OPENAI_API_KEY, value: sidecall}
{{- end }}
{{- end -}}

{{/* The rule holds for the pod's network, and so for every container of it that has another uid than the proxy. */}}
{{- define "sidecall.enforce" -}}
{{- $own := .Values.sidecar.enforce -}}
{{- $of := printf "meta skuid != %d tcp dport { %s }" (int .Values.securityContext.runAsUser) (join ", " $own.ports) -}}
{{- $rules := list -}}
{{- range $family := list "ip" "ip6" -}}
{{- $addresses := list -}}
{{- range $own.addresses -}}
{{- if eq (contains ":" .) (eq $family "ip6") -}}
{{- $addresses = append $addresses . -}}
{{- end -}}
{{- end -}}
{{- if $addresses -}}
{{- $rules = append $rules (printf "%s daddr { %s } %s reject with tcp reset;" $family (join ", " $addresses) $of) -}}
{{- end -}}
{{- end -}}
name: sidecall-enforce
image: {{ $own.image | quote }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
command:
  - nft
  - {{ printf "add table inet sidecall; delete table inet sidecall; table inet sidecall { chain output { type filter hook output priority 0; policy accept; %s }; };" (join " " $rules) | quote }}
resources:
  requests: {cpu: 10m, memory: 16Mi}
  limits: {memory: 32Mi}
securityContext:
  runAsUser: 0
  runAsGroup: 0
  runAsNonRoot: false
  readOnlyRootFilesystem: true
  allowPrivilegeEscalation: false
  capabilities: {drop: [ALL], add: [NET_ADMIN]}
  seccompProfile: {type: RuntimeDefault}
{{- end -}}
