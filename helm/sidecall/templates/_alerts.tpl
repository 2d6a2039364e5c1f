{{/*
What a person would want to be woken by. Takes {own, sel, recorded, budget, gateway}: the values of the rules, which series
they look at, which of those that they record, the share of requests that may be slow, and whether there is a gateway, which has to be there.
*/}}

{{- define "sidecall.alerts" -}}
{{- if .gateway }}
- alert: SidecallAbsent
  expr: absent(sidecall_build_info{ {{- .sel -}} })
  for: 5m
  {{- include "sidecall.alert" (list . "SidecallAbsent" "critical" "No gateway of Sidecall is scraped." "Clients of the gateway most likely get no answer.") | nindent 2 }}
{{- end }}
- alert: SidecallStateUnavailable
  expr: sum by (namespace, pod) (increase(sidecall_state_unavailable_total{ {{- .sel -}} }[5m])) > 0
  for: 2m
  {{- include "sidecall.alert" (list . "SidecallStateUnavailable" "critical" "Requests are refused since the store cannot be used." "{{ $labels.namespace }}/{{ $labels.pod }} answered about {{ $value | humanize }} requests with 503 state_unavailable within 5 minutes.") | nindent 2 }}
- alert: SidecallStoreDown
  expr: min by (namespace, pod) (sidecall_store_up{ {{- .sel -}} }) == 0
  for: 5m
  {{- include "sidecall.alert" (list . "SidecallStoreDown" "warning" "The store does not answer." "{{ $labels.namespace }}/{{ $labels.pod }} has not reached its store for 5 minutes; what needs it is refused.") | nindent 2 }}
- alert: SidecallPolicyReloadFailed
  expr: min by (namespace, pod) (sidecall_policy_reload_ok{ {{- .sel -}} }) == 0
  for: 5m
  {{- include "sidecall.alert" (list . "SidecallPolicyReloadFailed" "critical" "New policies were refused." "{{ $labels.namespace }}/{{ $labels.pod }} goes on with the old policies: the new ones cannot be used. Its log says why.") | nindent 2 }}
- alert: SidecallPolicyErrors
  {{- /* The second part sees the first error of a rule, which makes the series: `increase` sees only what follows. */}}
  expr: |-
    sum by (namespace, policy, rule) (increase(sidecall_policy_errors_total{ {{- .sel -}} }[10m])) > 0
    or sum by (namespace, policy, rule) (sidecall_policy_errors_total{ {{- .sel -}} } unless sidecall_policy_errors_total{ {{- .sel -}} } offset 10m) > 0
  {{- include "sidecall.alert" (list . "SidecallPolicyErrors" "critical" "A rule cannot be evaluated." "Rule {{ $labels.rule }} of policy {{ $labels.policy }} fails in {{ $labels.namespace }}; its calls are blocked, or pass it by, as its failurePolicy says.") | nindent 2 }}
- alert: SidecallHeldCallsOld
  expr: max by (namespace, pod) (sidecall_held_call_age_seconds{ {{- .sel -}} }) > {{ .own.heldCallSeconds }}
  for: 10m
  {{- include "sidecall.alert" (list . "SidecallHeldCallsOld" "warning" "A held call waits for too long." "The oldest held call of {{ $labels.namespace }}/{{ $labels.pod }} has had no result for {{ $value | humanizeDuration }}: its client did not come back.") | nindent 2 }}
- alert: SidecallBlockedShareJumped
  {{- /* A day without calls counts as one in which nothing was blocked. */}}
  expr: |-
    sidecall:tool_calls_blocked:ratio_rate15m{ {{- .recorded -}} } > {{ .own.blockedShareJump }} + 2 * (
      avg_over_time(sidecall:tool_calls_blocked:ratio_rate15m{ {{- .recorded -}} }[1d] offset 30m)
      or 0 * sidecall:tool_calls_blocked:ratio_rate15m{ {{- .recorded -}} }
    )
    and on (namespace) sum by (namespace) (increase(sidecall_tool_calls_total{ {{- .sel -}}, mode="enforce"}[15m])) > 10
  for: 10m
  {{- include "sidecall.alert" (list . "SidecallBlockedShareJumped" "warning" "Far more tool calls are blocked than the day before." "{{ $value | humanizePercentage }} of the tool calls in {{ $labels.namespace }} are blocked: a policy is wrong, or an agent is.") | nindent 2 }}
- alert: SidecallOverheadHigh
  expr: |-
    sidecall:overhead_slow:ratio_rate1h{ {{- .recorded -}} } > 14.4 * {{ .budget }}
    and sidecall:overhead_slow:ratio_rate5m{ {{- .recorded -}} } > 14.4 * {{ .budget }}
  for: 2m
  {{- include "sidecall.alert" (list . "SidecallOverheadHigh" "critical" "The proxy slows requests down." (printf "{{ $value | humanizePercentage }} of the requests in {{ $labels.namespace }} spent more than %v s in the proxy itself; at this rate the month's budget lasts two days." .own.overheadSeconds)) | nindent 2 }}
- alert: SidecallOverheadRising
  expr: |-
    sidecall:overhead_slow:ratio_rate6h{ {{- .recorded -}} } > 6 * {{ .budget }}
    and sidecall:overhead_slow:ratio_rate30m{ {{- .recorded -}} } > 6 * {{ .budget }}
  for: 15m
  {{- include "sidecall.alert" (list . "SidecallOverheadRising" "warning" "The proxy slows requests down, and has for hours." (printf "{{ $value | humanizePercentage }} of the requests in {{ $labels.namespace }} spent more than %v s in the proxy itself; at this rate the month's budget lasts five days." .own.overheadSeconds)) | nindent 2 }}
- alert: SidecallApprovalsWaiting
  expr: sum by (namespace, tool) (sidecall_approvals_pending{ {{- .sel -}} }) > 0
  for: {{ .own.approvalWait }}
  {{- include "sidecall.alert" (list . "SidecallApprovalsWaiting" "warning" "Approvals wait for a person." (printf "{{ $value }} calls of {{ $labels.tool }} in {{ $labels.namespace }} have waited for longer than %s." .own.approvalWait)) | nindent 2 }}
{{- end -}}

{{/* Takes [what the alerts take, name, severity, summary, description]. */}}
{{- define "sidecall.alert" -}}
{{- $own := (index . 0).own -}}
labels:
  severity: {{ index . 2 }}
  {{- with $own.alertLabels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
annotations:
  summary: {{ index . 3 | quote }}
  description: {{ index . 4 | quote }}
  runbook_url: {{ printf "%s%s.md" $own.runbooks (index . 1) | quote }}
{{- end -}}
