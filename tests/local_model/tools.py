"""Five tools for a small model, each with examples, and twelve questions that are none of the examples."""

from dataclasses import dataclass, field
from typing import Any

from turnlog import Agent, tool
from turnlog.engine import Tool
from turnlog.engine.models.base import Model


@dataclass
class Desk:
    """Five tools, and what they did."""

    ran: list[tuple[str, dict[str, Any]]] = field(default_factory=list)

    def tools(self) -> list[Tool]:
        """Tools that note their calls."""

        @tool(examples=[
            ("What is the weather like in Oslo?", {"city": "Oslo"}),
            ("Will it rain in Cairo today?", {"city": "Cairo"}),
        ])  # fmt: skip
        async def weather(city: str) -> str:
            """Tell the weather in a city."""
            self.ran.append(("weather", {"city": city}))
            return f"{city}: 12 degrees, light rain"

        @tool(examples=[
            ("What is 14 times 3?", {"expression": "14 * 3"}),
            ("Add 120 and 35.", {"expression": "120 + 35"}),
        ])  # fmt: skip
        async def calculate(expression: str) -> str:
            """Work out a sum."""
            self.ran.append(("calculate", {"expression": expression}))
            return "the result is 42"

        @tool(needs_approval=True, risk="sends a message", examples=[
            ("Email Bob that the meeting moved.", {"to": "Bob", "text": "The meeting moved."}),
            ("Write to Carla: the parcel is here.", {"to": "Carla", "text": "The parcel is here."}),
        ])  # fmt: skip
        async def send_email(to: str, text: str) -> str:
            """Send an email to somebody."""
            self.ran.append(("send_email", {"to": to, "text": text}))
            return f"sent to {to}"

        @tool(examples=[
            ("Set a timer for 3 minutes.", {"minutes": 3}),
            ("Wake me in 25 minutes.", {"minutes": 25}),
        ])  # fmt: skip
        async def set_timer(minutes: int) -> str:
            """Set a timer."""
            self.ran.append(("set_timer", {"minutes": minutes}))
            return f"the timer runs for {minutes} minutes"

        @tool(examples=[
            ("How do you say 'cat' in French?", {"text": "cat", "language": "French"}),
            ("Translate 'good night' into Italian.", {"text": "good night", "language": "Italian"}),
            ("What is 'house' in Spanish?", {"text": "house", "language": "Spanish"}),
        ])  # fmt: skip
        async def translate(text: str, language: str) -> str:
            """Translate a text into a language."""
            self.ran.append(("translate", {"text": text, "language": language}))
            return f"{text} in {language}"

        return [weather, calculate, send_email, set_timer, translate]

    def agent(self, model: Model) -> Agent:
        """An agent with all of them."""
        return Agent("@agent", model, role="You are a helpful assistant.", tools=self.tools())


QUESTIONS = (
    ("Is it sunny in Madrid right now?", "weather"),
    ("Tell me the weather in Nairobi.", "weather"),
    ("How cold is it in Helsinki?", "weather"),
    ("What is 250 divided by 5?", "calculate"),
    ("How much is 7 plus 18?", "calculate"),
    ("Send an email to Dora saying that I am late.", "send_email"),
    ("Email Frank that dinner is ready.", "send_email"),
    ("Start a timer of 10 minutes.", "set_timer"),
    ("Remind me in 45 minutes.", "set_timer"),
    ("Translate 'bread' into Spanish.", "translate"),
    ("How do you say 'thank you' in German?", "translate"),
    ("Good morning, how are you?", "answer"),
)
