{{/* The configuration file, as `sidecall serve --config` reads it. Takes a chart's own context. */}}

{{- define "sidecall.config" -}}
{{- $values := .Values -}}
{{- $secrets := "/etc/sidecall/secrets" -}}
{{- $gateway := eq $values.mode "gateway" -}}
{{- $listen := dict "host" (ternary $values.listen.address "127.0.0.1" $gateway) "port" (int $values.listen.port) -}}
{{- if and $gateway $values.allowAnyCaller -}}
{{- $_ := set $listen "allowAnyCaller" true -}}
{{- end -}}
{{- $admin := dict "host" $values.listen.address "port" (int $values.listen.adminPort) -}}
{{- if $values.admin.existingSecret -}}
{{- $_ := set $admin "token" (dict "file" (printf "%s/admin-token" $secrets)) -}}
{{- end -}}
{{- $upstream := dict "baseUrl" $values.upstream.baseUrl -}}
{{- if $values.upstream.existingSecret -}}
{{- $_ := set $upstream "auth" $values.upstream.auth -}}
{{- $_ := set $upstream "apiKey" (dict "file" (printf "%s/upstream-key" $secrets)) -}}
{{- end -}}
{{- $state := dict "url" "sqlite:/var/lib/sidecall/state.db" -}}
{{- if $values.state.redis.existingSecret -}}
{{- $_ := set $state "url" (dict "file" (printf "%s/redis-url" $secrets)) -}}
{{- else if $values.state.redis.url -}}
{{- $_ := set $state "url" $values.state.redis.url -}}
{{- end -}}
{{- if $values.state.encryption.existingSecret -}}
{{- $keys := list -}}
{{- range $index, $key := $values.state.encryption.secretKeys -}}
{{- $keys = append $keys (dict "file" (printf "%s/encryption-%d" $secrets $index)) -}}
{{- end -}}
{{- $_ := set $state "encryptionKey" $keys -}}
{{- end -}}
{{- $own := dict "apiVersion" "sidecall.io/v1" "kind" "Config" "listen" $listen "admin" $admin "upstream" $upstream "state" $state -}}
{{- $_ := set $own "shutdown" (include "sidecall.config.shutdown" . | fromYaml) -}}
{{- with include "sidecall.config.policies" . | fromYamlArray -}}
{{- $_ := set $own "policies" . -}}
{{- end -}}
{{- with include "sidecall.config.clients" . | fromYamlArray -}}
{{- $_ := set $own "clients" . -}}
{{- end -}}
{{- toYaml (mergeOverwrite (deepCopy $values.config) $own) -}}
{{- end -}}

{{/* A gateway's drain ends five seconds before the kubelet's patience does. */}}
{{- define "sidecall.config.shutdown" -}}
{{- if eq .Values.mode "gateway" -}}
{{- $own := .Values.gateway.shutdown -}}
delay: {{ int $own.delay }}s
drain: {{ sub $own.gracePeriod (add $own.delay 5) }}s
{{- else -}}
{{- $own := .Values.sidecar.shutdown -}}
delay: {{ ternary 0 (int $own.delay) .Values.sidecar.native }}s
drain: {{ int $own.drain }}s
{{- end -}}
{{- end -}}

{{- define "sidecall.config.policies" -}}
{{- $folders := list -}}
{{- if .Values.policies -}}
{{- $folders = append $folders "/etc/sidecall/policies/own" -}}
{{- end -}}
{{- range .Values.policyConfigMaps -}}
{{- $folders = append $folders (printf "/etc/sidecall/policies/maps/%s" .) -}}
{{- end -}}
{{- toYaml $folders -}}
{{- end -}}

{{- define "sidecall.config.clients" -}}
{{- $clients := list -}}
{{- range .Values.clients -}}
{{- if .existingSecret -}}
{{- $clients = append $clients (dict "name" .name "key" (dict "file" (printf "/etc/sidecall/secrets/client-%s" .name))) -}}
{{- else -}}
{{- $clients = append $clients (dict "name" .name "keySha256" .keySha256) -}}
{{- end -}}
{{- end -}}
{{- toYaml $clients -}}
{{- end -}}

{{/* The Secrets that the configuration names, as sources of a projected volume; nothing where there are none. */}}
{{- define "sidecall.config.secrets" -}}
{{- $values := .Values -}}
{{- $sources := list -}}
{{- with $values.upstream -}}
{{- if .existingSecret -}}
{{- $sources = append $sources (list .existingSecret .secretKey "upstream-key") -}}
{{- end -}}
{{- end -}}
{{- with $values.state.redis -}}
{{- if .existingSecret -}}
{{- $sources = append $sources (list .existingSecret .secretKey "redis-url") -}}
{{- end -}}
{{- end -}}
{{- with $values.state.encryption -}}
{{- if .existingSecret -}}
{{- range $index, $key := .secretKeys -}}
{{- $sources = append $sources (list $values.state.encryption.existingSecret $key (printf "encryption-%d" $index)) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- with $values.admin -}}
{{- if .existingSecret -}}
{{- $sources = append $sources (list .existingSecret .secretKey "admin-token") -}}
{{- end -}}
{{- end -}}
{{- range $values.clients -}}
{{- if .existingSecret -}}
{{- $sources = append $sources (list .existingSecret (.secretKey | default "key") (printf "client-%s" .name)) -}}
{{- end -}}
{{- end -}}
{{- range $sources }}
- secret:
    name: {{ index . 0 | quote }}
    items: [{key: {{ index . 1 | quote }}, path: {{ index . 2 | quote }}}]
{{- end -}}
{{- end -}}
