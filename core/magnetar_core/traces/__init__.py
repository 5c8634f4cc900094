"""Traces (OpenTelemetry): which spans a process makes, and where they go.

Only `otel` and `exporting` import OpenTelemetry, and only a process that was told to make traces
imports these two. Source: docs/design/0013-traces.md.
"""
