"""`manage.py document_settings`: write docs/settings.md from the code that reads the settings."""

from pathlib import Path

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from controlplane import settings_page


class Command(BaseCommand):
    """Writes the page anew; a test compares it with the code."""

    help = "Write docs/settings.md from the code that reads the settings."
    requires_system_checks = ()

    def handle(self, *args: object, **options: object) -> None:
        base = Path(settings.BASE_DIR)
        try:
            text = settings_page.page(base)
        except settings_page.UndescribedError as error:
            raise CommandError(str(error)) from error
        (base / "docs" / "settings.md").write_text(text, encoding="utf-8")
        self.stdout.write("docs/settings.md is up to date.")
