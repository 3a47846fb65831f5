"""The CI check of op lists, and of models against them."""

from amp_rewrite.oplists.list_check.check import check_lists
from amp_rewrite.oplists.list_check.report import CheckReport, Finding, Severity

__all__ = ["CheckReport", "Finding", "Severity", "check_lists"]
