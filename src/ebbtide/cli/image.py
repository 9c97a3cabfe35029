"""`ebb image`: the images of container registries."""

from __future__ import annotations

from ebbtide.cli.lazy import lazy_group

COMMANDS = {
    "scan": ("image_scan", "Look at a registry and record what is there, and since when."),
    "ls": ("image_ls", "List tags with their policies and dates."),
    "show": ("image_show", "What is known of an image, and what the log says of it."),
    "explain": ("image_explain", "Why an image goes or stays, and which rules are about it."),
    "delete": ("image_delete", "Delete an image now, or all that are older than so much."),
    "purge": ("image_purge", "The daily job: recycle what has expired, empty the bin of what has expired."),
    "recycle": ("image_recycle", "The recycle bin: list, restore, empty."),
    "listen": ("image_listen", "Take a registry's notifications, for exact times."),
    "policy": ("image_policy", "The policies of a registry: list, show, change, rename, remove, load."),
    "assign": ("image_assign", "Assign a policy to an image: its values are copied, its date is set."),
    "pin": ("image_pin", "Pin an image until a date, or for ever: it refuses to be deleted."),
    "unpin": ("image_unpin", "Take the pin of an image away; its policy counts from now."),
    "quarantine": ("image_quarantine", "Say how far the check of an image has come."),
    "log": ("image_log", "Who changed what and when, before and after, and what was refused."),
    "adopt": ("image_adopt", "Make a registry known, so that it can be changed while others have roles."),
    "role": ("image_role", "Who may change policies, and who may change images."),
}

app = lazy_group(COMMANDS, help="Work with the images of container registries.")


@app.callback()
def _group() -> None:
    """Work with the images of container registries."""
