"""The injector: a mutating webhook of Kubernetes that puts the sidecar into pods that ask for it.

What a sidecar is, is not known here: the chart renders it, and the injector reads it as a template.
"""
