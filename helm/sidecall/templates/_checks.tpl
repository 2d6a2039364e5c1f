{{/* What the schema cannot say. Each stops the installation with what is wrong, and what to do. */}}

{{- define "sidecall.checks" -}}
{{- $values := .Values -}}
{{- if eq (int $values.listen.port) (int $values.listen.adminPort) -}}
{{- fail "listen.port and listen.adminPort are the same: give each its own" -}}
{{- end -}}
{{- $names := dict -}}
{{- range $values.clients -}}
{{- if hasKey $names .name -}}
{{- fail (printf "clients: the name %s is there twice: give each its own" .name) -}}
{{- end -}}
{{- $_ := set $names .name true -}}
{{- end -}}
{{- $gateway := eq $values.mode "gateway" -}}
{{- with $values.gateway.autoscaling -}}
{{- if and $gateway .enabled (gt (int .minReplicas) (int .maxReplicas)) -}}
{{- fail "gateway.autoscaling.minReplicas is more than maxReplicas: make it that at most" -}}
{{- end -}}
{{- end -}}
{{- if and $gateway (include "sidecall.hasMany" .) (not (include "sidecall.hasRedis" .)) -}}
{{- fail "more than one replica needs state that they share: set state.redis.url or state.redis.existingSecret" -}}
{{- end -}}
{{- if and $values.state.redis.url $values.state.redis.existingSecret -}}
{{- fail "state.redis.url and state.redis.existingSecret are both set: keep one" -}}
{{- end -}}
{{- $url := regexReplaceAll "[/?].*$" (regexReplaceAll "^[a-z+]+://" $values.state.redis.url "") "" -}}
{{- if contains "@" $url -}}
{{- fail "state.redis.url holds credentials, which would lie in a ConfigMap: put the address into a Secret and name it in state.redis.existingSecret" -}}
{{- end -}}
{{- if and $gateway $values.upstream.existingSecret (not $values.clients) (not $values.allowAnyCaller) -}}
{{- fail "with upstream.existingSecret whoever reaches the gateway would use the endpoint's key: list clients, or set allowAnyCaller: true" -}}
{{- end -}}
{{- if and $gateway (ge (add $values.gateway.shutdown.delay 5) (int $values.gateway.shutdown.gracePeriod)) -}}
{{- fail "gateway.shutdown.gracePeriod leaves running requests no time: make it at least 6 seconds longer than gateway.shutdown.delay" -}}
{{- end -}}
{{- if and (not $gateway) $values.sidecar.enforce.enabled (not (and $values.sidecar.enforce.image $values.sidecar.enforce.addresses)) -}}
{{- fail "sidecar.enforce needs sidecar.enforce.image and sidecar.enforce.addresses" -}}
{{- end -}}
{{- if and (eq $values.mode "injector") $values.policies -}}
{{- fail "policies would lie in the injector's namespace, where other pods do not find them: put them into ConfigMaps of the pods' namespaces, and name those in policyConfigMaps or in the annotation sidecall.io/policies" -}}
{{- end -}}
{{- if and (ne $values.mode "gateway") $values.sidecar.native (semverCompare "<1.29.0-0" .Capabilities.KubeVersion.Version) -}}
{{- fail "native sidecars need Kubernetes 1.29: set sidecar.native: false" -}}
{{- end -}}
{{- if and $values.metrics.serviceMonitor.enabled (not $gateway) -}}
{{- fail "metrics.serviceMonitor is for a gateway: sidecars have no Service, use metrics.podMonitor" -}}
{{- end -}}
{{- include "sidecall.checks.config" . -}}
{{- end -}}

{{/* Settings that the chart makes from values of its own. */}}
{{- define "sidecall.checks.config" -}}
{{- $taken := dict "apiVersion" "" "kind" "" "policies" "policies and policyConfigMaps" "clients" "clients" "listen.host" "listen.address" "listen.port" "listen.port" "listen.allowAnyCaller" "allowAnyCaller" "admin.host" "listen.address" "admin.port" "listen.adminPort" "admin.token" "admin.existingSecret" "upstream.baseUrl" "upstream.baseUrl" "upstream.apiKey" "upstream.existingSecret" "upstream.auth" "upstream.auth" "state.url" "state.redis" "state.encryptionKey" "state.encryption" "shutdown" "gateway.shutdown and sidecar.shutdown" -}}
{{- range $path, $value := $taken -}}
{{- $parts := splitList "." $path -}}
{{- $at := $.Values.config -}}
{{- $there := true -}}
{{- range $part := $parts -}}
{{- if and $there (kindIs "map" $at) (hasKey $at $part) -}}
{{- $at = index $at $part -}}
{{- else -}}
{{- $there = false -}}
{{- end -}}
{{- end -}}
{{- if $there -}}
{{- fail (printf "config.%s is written by the chart%s" $path (ternary (printf ": use the value %s" $value) "" (ne $value ""))) -}}
{{- end -}}
{{- end -}}
{{- end -}}
