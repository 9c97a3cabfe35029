"""Explanations of images: what the policies make of an image and its names, as of the last scan."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from ebbtide.core.display import Explanation, Heading, Table
from ebbtide.core.errors import StoreError
from ebbtide.core.format import human_bytes
from ebbtide.core.instant import format_instant, format_second
from ebbtide.targets.oci.client.address import ImageRef, image_ref, registry_address
from ebbtide.targets.oci.client.registry import Ability, Capabilities
from ebbtide.targets.oci.model import ImageVerdict
from ebbtide.targets.oci.purge.explaining import Answer, Explained, explain_image
from ebbtide.targets.oci.purge.known import known
from ebbtide.targets.oci.purge.order import PurgeOrder
from ebbtide.targets.oci.purge.shop import RegistryShop
from ebbtide.targets.oci.simulated_images import plain_judgement


def ref_in(registry: str, name: str) -> ImageRef:
    """Read the name of an image in a registry: REPO:TAG or REPO@DIGEST."""
    address = registry_address(registry)
    slashes = "/" if address.startswith("oci://") else "//"
    return image_ref(f"{address}{slashes}{name}")


def explained_ref(shop: RegistryShop, image: ImageRef, order: PurgeOrder, now: datetime) -> Explained:
    """Explain the image of a name as of a moment."""
    images = known(shop.records, shop.root, shop.uid, image.registry).images(image.repository)

    def probe(repository: str) -> Capabilities:
        try:
            with shop.opened() as registry:
                return registry.capabilities(repository)
        except StoreError:
            # As a plan takes it that cannot find out; whoever asks for a reason need not reach the registry.
            return Capabilities(*[Ability.UNKNOWN] * 4)

    return explain_image(images, image.name, image.digest, image.tag, order, now, probe)


def plain_answer(answer: Answer) -> dict[str, Any]:
    """Give the public form of an answer: what becomes of a tag or manifest, and what a plan says of it."""
    plain = plain_judgement(answer.judgement)
    said = {"decision": answer.decision, "reason": answer.reason, "holder": answer.holder}
    # The policy's date alone would say less than the plan: what something holds is not due then.
    dates = {"deadline": format_instant(answer.deadline), "policy_deadline": plain["deadline"]}
    return plain | {"action": plain["decision"], **said, **dates, "rules": list(answer.rules)}


def explanation(explained: Explained) -> Explanation:
    """Lay out what becomes of an image, name by name."""
    image = explained.image
    rows = [
        (
            _name(one.judgement),
            one.decision,
            one.judgement.decision,
            one.judgement.policy,
            format_second(one.deadline),
            f"{one.reason}: {one.holder}" if one.holder else one.reason,
        )
        for one in explained.answers
    ]
    heading = Heading(f"{image.repository}@{image.digest}", human_bytes(image.size or 0))
    shown = Table("", ("", "decision", "action", "policy", "deadline", "reason"), rows)
    plain = [plain_answer(one) for one in explained.answers]
    return Explanation((heading, shown, *explained.rules), {"judgements": plain, "rules": explained.rules})


def _name(judgement: ImageVerdict) -> str:
    return f"tag {judgement.tag}" if judgement.tag else "manifest"
