"""The one place that builds adapters and hands them inward, in the order of starting and stopping."""
