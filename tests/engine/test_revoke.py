"""Revoking in code: a grant that does not hold for the session's owner is refused, not silently taken."""

import pytest

from tests.engine.support import World, of_kind
from turnlog.fsm.errors import Misuse


async def test_nobody_revokes_anothers_grant_or_one_that_never_was_or_one_twice(world: World) -> None:
    async with world.engine(world.agent()) as engine:
        hers, his = await engine.create("a", owner="ann"), await engine.create("b", owner="bob")
        await hers.grant("pay", by="ann")
        (grant,) = engine.grants.of("ann")
        for grant_id in (grant.grant.grant_id, "nothing"):
            with pytest.raises(Misuse, match=f"no grant '{grant_id}' holds for 'bob'"):
                await his.revoke(grant_id, by="bob")
        assert (engine.grants.of("ann"), of_kind(his, "grant_revoked")) == ((grant,), [])
        await hers.revoke(grant.grant.grant_id, by="ann")
        with pytest.raises(Misuse, match="was revoked"):
            await hers.revoke(grant.grant.grant_id, by="ann")
        assert (engine.grants.of("ann"), len(of_kind(hers, "grant_revoked"))) == ((), 1)
