"""`manage.py verify_audit`: walk the chains of the audit trail and name what was tampered with."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from tenants.domain import audit
from tenants.domain.audit import Finding


class Command(BaseCommand):
    """Prints the end of each chain, to be kept elsewhere and given back by `--expect`."""

    help = "Check that no sealed audit row was altered, removed or moved."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Take ends of chains that an earlier run printed."""
        parser.add_argument(
            "--expect",
            action="append",
            default=[],
            metavar="CHAIN:POSITION:HASH",
            help="the end of a chain as an earlier run printed it; shows a cut or rewritten trail",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        """Fail with one line for each finding."""
        expected = dict(_expected(text) for text in options["expect"])
        verification = audit.verify(expected)
        for chain, (position, digest) in sorted(audit.heads().items()):
            self.stdout.write(f"head {chain} {position} {digest}")
        self.stdout.write(f"{verification.rows} rows sealed, {verification.unsealed} not yet")
        if verification.findings:
            raise CommandError("\n".join(_line(finding) for finding in verification.findings))


def _expected(text: str) -> tuple[str, tuple[int, str]]:
    chain, _, rest = text.partition(":")
    position, _, digest = rest.partition(":")
    if not (chain and position.isdecimal() and digest):
        raise CommandError(
            f"--expect {text}: write CHAIN:POSITION:HASH, the three words of a `head` line"
        )
    return chain, (int(position), digest)


def _line(finding: Finding) -> str:
    row = "its row is gone" if finding.row_id is None else f"row {finding.row_id}"
    return (
        f"{finding.kind}: {row}, position {finding.position} of chain {finding.chain}"
        f" {finding.subject}"
    ).rstrip()
