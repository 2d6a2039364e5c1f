"""Examples for the schemas, by the names of the models; each is what its model reads."""

from __future__ import annotations

from typing import Any

_RULE = {
    "name": "no-deletes",
    "match": {"tools": ["delete_*", "drop_*"]},
    "block": {"message": "Deleting is not allowed here."},
}

EXAMPLES: dict[str, list[Any]] = {
    "PolicyDocument": [
        {
            "apiVersion": "sidecall.io/v1",
            "kind": "ToolPolicy",
            "metadata": {"name": "orders", "description": "What agents may do to orders."},
            "spec": {"rules": [_RULE]},
        }
    ],
    "SpecModel": [{"mode": "shadow", "match": {"tools": ["orders_*"]}, "rules": [_RULE]}],
    "RuleModel": [
        _RULE,
        {
            "name": "workspace-only",
            "match": {"tools": ["read_file", "write_file"], "args": {"path": {"notInside": "/workspace"}}},
            "block": {"message": "Only files in /workspace."},
        },
        {
            "name": "cap-limit",
            "match": {"tools": ["search"]},
            "when": "has(args.limit) && args.limit > 10",
            "rewrite": {"clamp": {"limit": {"max": 10}}},
        },
    ],
    "MatchModel": [
        {"tools": ["search_*"], "args": {"limit": {"gt": 10}}},
        {"declared": False},
        {"tools": ["fetch"], "args": {"url": {"host": "private"}}},
    ],
    "ConditionModel": [
        {"notInside": "/workspace"},
        {"in": ["w", "a"]},
        {"regex": "(?i)\\bdrop\\s+table\\b"},
        {"host": ["private", "*.internal.example.com"]},
        {"gt": 0, "lte": 100},
    ],
    "BlockModel": [{"message": "Deleting is not allowed here.", "then": "continue"}],
    "AnswerModel": [{"content": "There is nothing to see."}, {"expr": '"hello " + args.name'}],
    "RewriteModel": [
        {"clamp": {"limit": {"max": 10}}},
        {"merge": {"dry_run": True, "verbose": None}},
        {"default": {"limit": 10}},
        {"patch": [{"op": "remove", "path": "/debug"}]},
    ],
    "ValidateModel": [{"schema": "declared"}, {"schema": {"type": "object", "required": ["id"]}}],
    "LimitModel": [{"max": 5, "per": "1h", "by": ["tenant", "tool"]}],
    "ApprovalModel": [{"wait": "30s", "ttl": "1h", "message": "Money leaves the house."}],
    "AskModel": [{"url": "http://127.0.0.1:8181/v1/data/tools/allow", "timeout": "2s", "onError": "fail"}],
    "ResultModel": [
        {"redact": [{"pattern": "[0-9]{16}", "with": "[card]"}]},
        {"truncate": {"maxBytes": "64Ki"}},
        {"block": {"message": "This result is not shown."}},
    ],
    "CasesDocument": [
        {
            "apiVersion": "sidecall.io/v1",
            "kind": "ToolPolicyTest",
            "metadata": {"name": "orders"},
            "cases": [
                {
                    "name": "deleting is blocked",
                    "call": {"tool": "delete_order", "args": {"id": 7}},
                    "expect": {"decision": "blocked", "policy": "orders", "rule": "no-deletes"},
                }
            ],
        }
    ],
    "CaseModel": [
        {
            "name": "a high limit is capped",
            "call": {"tool": "search", "args": {"limit": 99}},
            "expect": {"decision": "rewritten", "rule": "cap-limit", "args": {"limit": 10}},
        },
        {
            "name": "card numbers do not come back",
            "call": {"tool": "get_customer"},
            "result": "card 4111111111111111",
            "expect": {"outcome": "redacted", "result": "card [card]"},
        },
        {
            "name": "deleting waits until the search is done",
            "batch": [{"tool": "delete_order", "args": {"id": 7}}, {"tool": "search"}],
            "expect": {"order": [["search"], ["delete_order"]]},
        },
    ],
    "CallModel": [{"tool": "search", "args": {"query": "shoes", "limit": 99}}],
    "ExpectModel": [
        {"decision": "blocked", "rule": "no-deletes", "contains": ["not allowed"]},
        {"decision": "allowed", "rule": ""},
        {"decision": "rewritten", "args": {"limit": 10}},
    ],
    "Config": [
        {
            "apiVersion": "sidecall.io/v1",
            "kind": "Config",
            "upstream": {"baseUrl": "https://api.openai.com/v1"},
            "policies": ["policies/"],
        }
    ],
    "ToolEntry": [
        {
            "name": "get_price",
            "description": "The price of an order.",
            "parameters": {"type": "object", "properties": {"order_id": {"type": "string"}}, "required": ["order_id"]},
            "http": {"method": "GET", "url": "http://127.0.0.1:7001/orders/{order_id}/price"},
        }
    ],
    "Secret": [{"env": "OPENAI_API_KEY"}, {"file": "/run/secrets/openai"}],
}
