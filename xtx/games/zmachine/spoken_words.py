"""The story's own words for the commands that are given in every story, where its parser knows no English."""

from __future__ import annotations

from xtx.games.zmachine.story_memory import Dictionary

_OTHERS = {
    "look": "l mirar mira schau guarda regarder regarde olhar titta kijk katso",
    "inventory": "i inv inventario inventar inventaire inventarium inventaris tavarat",
    "examine": "x ex examinar examina untersuche untersuch esamina examiner undersok onderzoek tutki",
    "score": "puntos puntuacion punkte punktestand punti punteggio points pontos pontuacao poang punten pisteet",
    "wait": "z esperar espera warte aspetta attendre attends vanta wacht odota",
    "north": "n norte norden nord noord norr pohjoinen",
    "south": "s sur sueden sud sul zuid soder etela",
    "east": "e este osten ost est leste oost itaan",
    "west": "w oeste westen ouest ovest vast lansi",
    "up": "u arriba hoch haut su cima",
    "down": "d abajo runter bas giu baixo",
}
"""By the English command: short forms, then Spanish, German, Italian, French, Portuguese, Swedish, Dutch, Finnish."""


def find_spoken_words(dictionary: Dictionary) -> dict[str, str]:
    """By the English command, the first other word for it that the dictionary has; nothing where it has the English."""
    found = {}
    for english, others in _OTHERS.items():
        word = next((other for other in others.split() if dictionary.has_word(other)), None)
        if word is not None and not dictionary.has_word(english):
            found[english] = word
    return found
