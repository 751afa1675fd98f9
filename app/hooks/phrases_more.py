"""Further languages, each with the one thing that nearly every attack says: what came before is void."""

from collections.abc import Mapping
from typing import Final

from app.hooks.phrases import Language

_OVERRIDE: Final[Mapping[str, tuple[str, ...]]] = {
    "instruction_override": (
        "!not override 3 earlier 2 orders",
        "!not override 3 orders 3 earlier",
        "!not override 1 all 1 orders",
    ),
    "prompt_extraction": ("show 3 prompt 1 system", "show 3 system 0 prompt"),
}

ITALIAN: Final = Language(
    words={
        "override": "ignora ignorate ignorare ignori dimentica dimenticate dimenticare scarta trascura",
        "not": "non mai",
        "earlier": "precedenti precedente iniziali originali tue vostre sopra sistema",
        "all": "tutte ogni qualsiasi",
        "orders": "istruzione istruzioni direttive prompt regole indicazioni",
        "filler": "tutte tutti le i gli tue e",
        "show": "mostra mostrami rivela stampa ripeti dimmi",
        "prompt": "prompt istruzioni",
        "system": "sistema nascoste segrete",
    },
    rules=_OVERRIDE,
)

PORTUGUESE: Final = Language(
    words={
        "override": "ignore ignora ignorem ignorar esqueca esquece esquecam desconsidere descarte",
        "not": "nao nunca",
        "earlier": "anteriores anterior previas previa iniciais originais suas acima sistema",
        "all": "todas quaisquer qualquer",
        "orders": "instrucao instrucoes diretrizes prompt regras orientacoes comandos",
        "filler": "todas todos as os suas e",
        "show": "mostre mostra revele revela imprima repita",
        "prompt": "prompt instrucoes",
        "system": "sistema ocultas secretas",
    },
    rules=_OVERRIDE,
)

DUTCH: Final = Language(
    words={
        "override": "negeer negeren vergeet vergeten omzeil",
        "not": "niet nooit",
        "earlier": "vorige voorgaande eerdere bovenstaande oorspronkelijke je jouw",
        "all": "alle",
        "orders": "instructie instructies opdrachten aanwijzingen richtlijnen prompt regels",
        "filler": "alle de het je jouw en",
        "show": "toon laat onthul herhaal geef print",
        "prompt": "prompt systeemprompt instructies",
        "system": "systeem systeemprompt verborgen geheime",
    },
    rules=_OVERRIDE,
)

RUSSIAN: Final = Language(
    words={
        "override": "игнорируй игнорируйте игнорировать забудь забудьте отбрось проигнорируй проигнорируйте",
        "not": "не никогда",
        "earlier": "предыдущие предыдущих прежние прошлые вышеуказанные предшествующие твои свои системные",
        "all": "все всех любые",
        "orders": "инструкции инструкций указания команды правила промпт",
        "filler": "все всех эти твои и",
        "show": "покажи выведи раскрой повтори напечатай",
        "prompt": "промпт инструкции подсказку",
        "system": "системный системные системную скрытые секретные",
    },
    rules=_OVERRIDE,
)
